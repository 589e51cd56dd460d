// A goroutine for each kind of lock of package sync, and for channels, waiting for it for ever.
// Prints its id.
package main

import (
	"fmt"
	"os"
	"sync"
	"time"
)

var mutex sync.Mutex
var shared sync.RWMutex
var written sync.RWMutex
var group sync.WaitGroup
var condition = sync.NewCond(new(sync.Mutex))
var empty = make(chan int)
var full = make(chan int, 1)

func forMutex()     { mutex.Lock() }
func forReading()   { shared.RLock() }
func forWriting()   { written.Lock() }
func forGroup()     { group.Wait() }
func forReceiving() { <-empty }
func forSending()   { full <- 2 }

func forCondition() {
	condition.L.Lock()
	condition.Wait()
}

func forEither() {
	select {
	case <-empty:
	case full <- 3:
	}
}

func main() {
	mutex.Lock()
	shared.Lock()
	written.RLock()
	group.Add(1)
	full <- 1
	for _, waits := range []func(){forMutex, forReading, forWriting, forGroup, forReceiving,
		forSending, forCondition, forEither} {
		go waits()
	}
	fmt.Println(os.Getpid())
	for {
		time.Sleep(1000 * time.Second)
	}
}

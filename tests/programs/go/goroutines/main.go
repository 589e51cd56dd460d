// Covers: a Go program: goroutines, channels, mutexes, wait groups, select with timers, an HTTP
// server and its clients in one process, child processes, signals, garbage collection.
//
// Hard for a recorder: the runtime makes its own threads with clone and its own syscalls without
// libc, on goroutine stacks of a few kilobytes; it preempts goroutines with SIGURG in the middle of
// computation, and its network poller is one epoll for everything.
package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

func check(good bool, what string) {
	if !good {
		fmt.Fprintln(os.Stderr, "goroutines: failed:", what)
		os.Exit(1)
	}
}

func must(err error, what string) {
	check(err == nil, fmt.Sprint(what, ": ", err))
}

func channels() {
	work, results := make(chan int), make(chan int, 4)
	var workers sync.WaitGroup
	for i := 0; i < 100; i++ {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for item := range work {
				results <- item * item
			}
		}()
	}
	go func() {
		for i := 1; i <= 1000; i++ {
			work <- i
		}
		close(work)
		workers.Wait()
		close(results)
	}()
	sum := 0
	for result := range results {
		sum += result
	}
	runtime.GC()
	fmt.Println("channels: sum", sum)
}

func locks() {
	var mutex sync.Mutex
	var readWrite sync.RWMutex
	var once sync.Once
	var atomicCount int64
	count, onceRuns, table := 0, 0, map[int]int{}
	var group sync.WaitGroup
	for i := 0; i < 20; i++ {
		group.Add(1)
		go func(me int) {
			defer group.Done()
			for round := 0; round < 200; round++ {
				mutex.Lock()
				count++
				mutex.Unlock()
				atomic.AddInt64(&atomicCount, 1)
				if round%50 == 0 {
					readWrite.Lock()
					table[me*1000+round] = round
					readWrite.Unlock()
				} else {
					readWrite.RLock()
					check(len(table) <= 80, "size of the table")
					readWrite.RUnlock()
				}
				once.Do(func() { onceRuns++ })
			}
		}(i)
	}
	group.Wait()
	fmt.Println("locks:", count, atomicCount, len(table), onceRuns)
}

// A goroutine that never calls anything must be preempted for the others to get on.
func preemption() {
	old := runtime.GOMAXPROCS(1)
	var started, stop, spins int64
	done := make(chan bool)
	go func() {
		atomic.StoreInt64(&started, 1)
		for atomic.LoadInt64(&stop) == 0 {
			spins++
		}
		done <- true
	}()
	for atomic.LoadInt64(&started) == 0 {
		time.Sleep(time.Millisecond)
	}
	atomic.StoreInt64(&stop, 1)
	<-done
	check(spins >= 0, "it spun")
	runtime.GOMAXPROCS(old)
	fmt.Println("preemption: done")
}

func web() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(err, "listen")
	mux := http.NewServeMux()
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		must(err, "request body")
		fmt.Fprintf(w, "%s %s", r.Method, strings.ToUpper(string(body)))
	})
	server := &http.Server{Handler: mux}
	served := make(chan error)
	go func() { served <- server.Serve(listener) }()

	url := "http://" + listener.Addr().String()
	var group sync.WaitGroup
	var answers int64
	for i := 0; i < 20; i++ {
		group.Add(1)
		go func(me int) {
			defer group.Done()
			for round := 0; round < 5; round++ {
				text := fmt.Sprintf("client %d round %d", me, round)
				response, err := http.Post(url+"/echo", "text/plain", strings.NewReader(text))
				must(err, "post")
				body, err := io.ReadAll(response.Body)
				must(err, "response body")
				response.Body.Close()
				check(string(body) == "POST "+strings.ToUpper(text), "answer")
				atomic.AddInt64(&answers, 1)
			}
		}(i)
	}
	group.Wait()
	response, err := http.Get(url + "/missing")
	must(err, "get")
	response.Body.Close()
	check(response.StatusCode == 404, "status of a missing page")
	// Not Shutdown: it waits five seconds for a connection that was opened and never used.
	http.DefaultClient.CloseIdleConnections()
	must(server.Close(), "close")
	check(<-served == http.ErrServerClosed, "end of the server")
	fmt.Println("web:", answers, "answers")
}

func child() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		fmt.Println(strings.ToUpper(lines.Text()))
	}
	os.Exit(6)
}

func children() {
	self, err := os.Executable()
	must(err, "own name")
	var group sync.WaitGroup
	for i := 0; i < 3; i++ {
		group.Add(1)
		go func() {
			defer group.Done()
			command := exec.Command(self, "child")
			command.Stdin = strings.NewReader("one\ntwo\n")
			output, err := command.Output()
			failed, isExit := err.(*exec.ExitError)
			check(isExit && failed.ExitCode() == 6, "status of the child")
			check(string(output) == "ONE\nTWO\n", "output of the child")
		}()
	}
	group.Wait()
	sleeper := exec.Command("sleep", "100")
	must(sleeper.Start(), "start")
	time.AfterFunc(5*time.Millisecond, func() { sleeper.Process.Kill() })
	failed, isExit := sleeper.Wait().(*exec.ExitError)
	check(isExit && failed.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL, "killed")
	check(exec.Command("/nonexistent/program").Run() != nil, "missing program")
	fmt.Println("children: 3 ended, 1 killed, 1 missing")
}

func timersAndSignals() {
	received := make(chan os.Signal, 1)
	signal.Notify(received, syscall.SIGUSR1)
	must(syscall.Kill(os.Getpid(), syscall.SIGUSR1), "kill")
	check(<-received == syscall.SIGUSR1, "signal")
	signal.Stop(received)

	ticker := time.NewTicker(2 * time.Millisecond)
	timeout := time.After(15 * time.Millisecond)
	ticks := 0
loop:
	for {
		select {
		case <-ticker.C:
			ticks++
		case <-timeout:
			break loop
		}
	}
	ticker.Stop()
	check(ticks > 0, "ticks")
	start := time.Now()
	time.Sleep(3 * time.Millisecond)
	check(time.Since(start) >= 3*time.Millisecond, "sleep")
	fmt.Println("timers and signals: done")
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "child" {
		child()
	}
	channels()
	locks()
	preemption()
	web()
	children()
	timersAndSignals()
}

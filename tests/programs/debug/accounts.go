// For the debugger's tests: a function that changes what it is pointed to, called in a loop, with a
// system call in each round.
package main

import "fmt"

type account struct {
	id      int
	balance int64
}

var accounts = [3]account{{1, 100}, {2, 200}, {3, 300}}

// Moves money, if there is enough.
func transfer(from *account, to *account, amount int64) int64 {
	if from.balance < amount {
		return -1
	}
	from.balance -= amount
	to.balance += amount
	return amount
}

func main() {
	var moved int64
	for i := 1; i <= 3; i++ {
		result := transfer(&accounts[i-1], &accounts[i%3], int64(10*i))
		if result > 0 {
			moved += result
		}
		fmt.Println(i, result)
	}
	fmt.Println("moved", moved)
}

// A small HTTP server for the benchmark: one fixed answer for every request.
// Usage: go-http ADDRESS
package main

import (
	"fmt"
	"net/http"
	"os"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go-http ADDRESS")
		os.Exit(2)
	}
	answer := []byte("meanwhile, on the other node ...\n")
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		w.Write(answer)
	})
	if err := http.ListenAndServe(os.Args[1], nil); err != nil {
		fmt.Fprintln(os.Stderr, "go-http:", err)
		os.Exit(1)
	}
}

package main

import (
	"fmt"
	"os"
	"testing"
)

// TestMain makes the binary of the tests a worker, as main does.
func TestMain(m *testing.M) {
	if config := os.Getenv(workerEnv); config != "" {
		if err := runWorker(config); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

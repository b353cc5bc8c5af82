// Soak keeps all recipes at work for hours, at full speed and with faults, and looks for anything
// that grows: memory, goroutines, file descriptors, and the watches, connections, nodes and
// sessions of the server.
//
//	go run ./internal/soak -for 8h
//	go run ./internal/soak -for 8h -piece 30m -server real -out soak-real
//
// With -piece a run ends early, and the next one goes on where it ended, by the samples in
// OUT/samples.csv. Each piece is a process of its own, with servers of its own. So each is judged
// by itself: what a quantity has grown in the second half of the piece must be within a limit.
//
// OUT has a plot of each quantity over all pieces. The exit code is 1 if a piece was not flat, if a
// worker made no progress in it, or if a recipe returned an error that no fault explains.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"
)

func main() {
	testing.Init() // real servers are those of the test kit, which looks at the flags of tests
	var o options
	flag.DurationVar(&o.whole, "for", 8*time.Hour, "how `long` all pieces take together")
	flag.DurationVar(&o.piece, "piece", 0, "how `long` this run takes at most; 0 for all that is left")
	flag.DurationVar(&o.every, "every", 5*time.Second, "the `time` between samples")
	flag.StringVar(&o.server, "server", "embedded", "the `kind` of server: embedded, or real as recipestest/ensemble finds it")
	flag.StringVar(&o.out, "out", "soak", "the `directory` of samples and plots")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills
	if err := run(ctx, os.Stdout, o); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

type options struct {
	whole, piece, every time.Duration
	server, out         string

	atSample func() // called before each sample; nil except in tests
}

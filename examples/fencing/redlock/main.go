// Redlock runs two locks side by side: Redlock on five Redis servers, and package lock on
// ZooKeeper. It pauses the client that holds the lock, and lets the clocks of servers leap. A table
// shows how often two clients believe that they hold the lock, how many late writes that causes,
// and which stores refuse them:
//
//	go run -C examples/fencing ./redlock
//
// README.md explains the table, and what "holds", "pause" and "leap" mean here. All servers run
// inside the program.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	var o options
	flag.IntVar(&o.rounds, "rounds", 5, "how many `rounds` to run of each fault, at the same time")
	flag.Uint64Var(&o.seed, "seed", 1, "the `seed` of what is drawn for each round")
	flag.DurationVar(&o.lease, "lease", 3*time.Second, "the expiry of Redlock and the session timeout of ZooKeeper")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "redlock: unexpected argument %q\n", flag.Arg(0))
		os.Exit(2)
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills
	rows, err := run(ctx, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "redlock:", err)
		os.Exit(1)
	}
	printTable(os.Stdout, o, rows)
}

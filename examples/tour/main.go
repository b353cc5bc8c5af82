// Tour shows live what the recipes do, on a ZooKeeper that it runs inside itself:
//
//	go run ./examples/tour
//
// On a real ensemble it works below a path of its own, which it removes in the end:
//
//	go run ./examples/tour -servers zk1:2181,zk2:2181,zk3:2181
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// chapters are the stops of the tour, each in a file of its own.
var chapters = []struct {
	title string
	show  func(context.Context, *tour) error
}{
	{"The exclusive lock", exclusiveLock},
	{"The shared lock", sharedLock},
	{"Leader election", leaderElection},
	{"The queue", distributedQueue},
	{"The double barrier", doubleBarrier},
}

func main() {
	var o options
	flag.StringVar(&o.servers, "servers", "", "`host:port,...` of a real ensemble (default: a ZooKeeper inside this program)")
	flag.IntVar(&o.workers, "workers", 10, "how many workers take part, 2 to 100")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "tour: unexpected argument %q\n", flag.Arg(0))
		os.Exit(2)
	}

	if o.workers < 2 || o.workers > 100 {
		fmt.Fprintf(os.Stderr, "tour: -workers %d: must be 2 to 100\n", o.workers)
		os.Exit(2)
	}

	// Few workers take their time, many hurry.
	o.pace = min(2*time.Second/time.Duration(o.workers), 300*time.Millisecond)

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills
	if err := run(ctx, os.Stdout, o); err != nil {
		fmt.Fprintln(os.Stderr, "tour:", err)
		if errors.Is(err, errInterrupted) {
			os.Exit(130)
		}
		os.Exit(1)
	}
}

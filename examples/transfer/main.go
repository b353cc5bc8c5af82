// Transfer moves money between two accounts by two-phase commit, and kills the coordinator at each
// packet that it sends or receives. It shows that a transfer happens to both accounts or to none,
// and that no account waits for a coordinator that is dead:
//
//	go run ./examples/transfer
//
// The recipe is in transfer.go, written on package protocol alone.
//
// It runs on a ZooKeeper inside itself, or on a real ensemble. There it works below a path of its
// own, which it removes in the end:
//
//	go run ./examples/transfer -servers zk1:2181,zk2:2181,zk3:2181
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	var o options
	flag.StringVar(&o.servers, "servers", "", "`host:port,...` of a real ensemble (default: a ZooKeeper inside this program)")
	flag.StringVar(&o.path, "path", "", "the `path` at which to coordinate; the program starts its copies with this")
	flag.IntVar(&o.fatal, "fatal", 0, "the `number` of the packet at which the coordinator is killed")
	flag.DurationVar(&coordinatorTimeout, "timeout", coordinatorTimeout, "the session timeout of a coordinator")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "transfer: unexpected argument %q\n", flag.Arg(0))
		os.Exit(2)
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills
	show := run
	if o.path != "" {
		show = runCoordinator
	}
	if err := show(ctx, os.Stdout, o); err != nil {
		fmt.Fprintln(os.Stderr, "transfer:", err)
		if errors.Is(err, context.Canceled) {
			os.Exit(130)
		}
		os.Exit(1)
	}
}

type options struct {
	servers string // of a real ensemble, or empty
	path    string // of a coordinator
	fatal   int    // the packet at which it is killed
}

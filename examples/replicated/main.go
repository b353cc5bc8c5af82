// Replicated is a small HTTP service in three copies, one of which leads. The leader accepts writes
// and stamps them with its fencing token; the others redirect to it. The program starts the copies,
// each a process of its own. It kills the leader, and stops the next one in the middle of a write.
// It shows which copy takes over, after how long, and what becomes of that write:
//
//	go run ./examples/replicated
//
// It runs on a ZooKeeper inside itself, or on a real ensemble. There it works below a path of its
// own, which it removes in the end:
//
//	go run ./examples/replicated -servers zk1:2181,zk2:2181,zk3:2181
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
	flag.StringVar(&o.name, "replica", "", "be the replica of this `name`; the program starts its copies with this")
	flag.StringVar(&o.path, "path", "", "the `path` of the election")
	flag.StringVar(&o.store, "store", "", "the `URL` of the store that the replica writes to")
	flag.DurationVar(&sessionTimeout, "timeout", sessionTimeout, "the session timeout")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "replicated: unexpected argument %q\n", flag.Arg(0))
		os.Exit(2)
	}

	if o.name != "" {
		if err := runReplica(o); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", o.name, err)
			os.Exit(1)
		}
		return
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills
	if err := run(ctx, os.Stdout, o); err != nil {
		fmt.Fprintln(os.Stderr, "replicated:", err)
		if errors.Is(err, errInterrupted) {
			os.Exit(130)
		}
		os.Exit(1)
	}
}

type options struct {
	servers           string // of a real ensemble, or empty
	name, path, store string // of a replica
}

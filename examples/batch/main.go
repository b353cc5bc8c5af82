// Batch is a job of three phases that some worker processes do together: they begin each phase at the same time, drain a
// queue of tasks that they share, and end the phase at the same time. The program starts the workers as copies of itself,
// kills one in the middle of the second phase and replaces it, and shows what becomes of the task that it was at:
//
//	go run ./examples/batch
//
// It runs on a ZooKeeper inside itself, or on a real ensemble, below a path of its own that it removes in the end:
//
//	go run ./examples/batch -servers zk1:2181,zk2:2181,zk3:2181
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

	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
)

const (
	workers = 4
	phases  = 3
	tasks   = 24 // in each phase

	// fatal is the task at which a worker is killed.
	fatal = "task-2.13"
)

// sessionTimeout decides how soon the others hear that a worker has died.
var sessionTimeout = 2 * time.Second

func main() {
	servers := flag.String("servers", "", "`host:port,...` of a real ensemble (default: a ZooKeeper inside this program)")
	name := flag.String("worker", "", "be the worker of this `name`; the program starts its copies with this")
	path := flag.String("path", "", "where the worker finds the others")
	flag.DurationVar(&sessionTimeout, "timeout", sessionTimeout, "how long a session lasts that is not heard of")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "batch: unexpected argument %q\n", flag.Arg(0))
		os.Exit(2)
	}
	if *name != "" {
		if err := work(*servers, *path); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", *name, err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills
	if err := run(ctx, os.Stdout, *servers); err != nil {
		fmt.Fprintln(os.Stderr, "batch:", err)
		if errors.Is(err, context.Canceled) {
			os.Exit(130)
		}
		os.Exit(1)
	}
}

// plan is where the processes meet. The one that starts the workers is a member of each phase, too: nobody begins before
// it has filled the queue, and it knows when all have ended.
func plan(c *protocol.Client, path string) (*doublebarrier.Barrier, *queue.Queue) {
	return doublebarrier.New(c, path+"/phase", workers+1, doublebarrier.WaitForNextRound()), queue.New(c, path+"/tasks")
}

// Batch is a job of three phases that several worker processes do together. They begin each phase
// at the same time, drain a shared queue of tasks, and end the phase at the same time. The program
// starts the workers as copies of itself. It kills one in the middle of the second phase and
// replaces it. It shows what becomes of that worker's task, who is waited for before a phase, and
// that the new worker finds out which phase it has joined:
//
//	go run ./examples/batch
//
// It runs on a ZooKeeper inside itself, or on a real ensemble. There it works below a path of its
// own, which it removes in the end:
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

// sessionTimeout decides how soon the others learn that a worker has died.
var sessionTimeout = 2 * time.Second

func main() {
	servers := flag.String("servers", "", "`host:port,...` of a real ensemble (default: a ZooKeeper inside this program)")
	name := flag.String("worker", "", "be the worker of this `name`; the program starts its copies with this")
	path := flag.String("path", "", "the `path` at which the workers meet")
	flag.DurationVar(&sessionTimeout, "timeout", sessionTimeout, "the session timeout")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "batch: unexpected argument %q\n", flag.Arg(0))
		os.Exit(2)
	}

	if *name != "" {
		if err := work(*servers, *path, *name); err != nil {
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

// plan returns the barrier and the queue at which the processes meet. The parent is a member of
// each phase, too. No worker begins before the parent has filled the queue, and the parent knows
// when all have ended.
//
// Phase n is round n of the barrier. The number is kept even if all processes are gone for a while.
func plan(c *protocol.Client, path, name string) (*doublebarrier.Barrier, *queue.Queue) {
	phase := doublebarrier.New(c, path+"/phase", workers+1, doublebarrier.WithWaiting(),
		doublebarrier.WithKeptRounds(), doublebarrier.WithData([]byte(name)))
	return phase, queue.New(c, path+"/tasks")
}

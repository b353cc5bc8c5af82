package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/queue"
)

func newQueueWorkCommand(a *app) *cobra.Command {
	workers, attempts := 1, 0
	var dead string
	cmd := a.running("work PATH", "Run a command for each element of a queue",
		func(ctx context.Context, args []string, p program) error {
			return a.under(ctx, nothing, func(client *protocol.Client, _ held, signals signals) error {
				options := []queue.Option{queue.WithPriorities()}
				if dead != "" {
					options = append(options, queue.WithDeadLetter(queue.New(client, dead), attempts))
				}
				q := queue.New(client, args[0], options...)
				return a.consume(ctx, client, q, workers, args[0], p, signals)
			})
		})
	cmd.PreRunE = func(_ *cobra.Command, args []string) error {
		switch {
		case workers < 1:
			return usagef("--workers %d: must be at least 1", workers)
		case (dead == "") != (attempts == 0) || attempts < 0:
			return usagef("--dead PATH and --attempts N: give both, and at least one attempt, or none")
		case dead == args[0]:
			return usagef("--dead %s: a queue cannot be its own", dead)
		case dead != "" && recipe.ValidatePath(dead) != nil:
			return usagef("--dead %s: must be a path", dead)
		}

		return nil
	}
	cmd.Flags().IntVar(&workers, "workers", 1, "how many commands run at a time")
	cmd.Flags().StringVar(&dead, "dead", "", "queue for elements that have failed --attempts times")
	cmd.Flags().IntVar(&attempts, "attempts", 0, "how often an element is tried before it goes to --dead")
	return cmd
}

// consume runs a program for each element. A signal ends the work and goes to the programs.
func (a *app) consume(
	ctx context.Context, client *protocol.Client, q *queue.Queue, workers int, path string, p program, signals signals,
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	all := newRelay(a.wait)
	go all.forward(ctx, signals, stop)

	err := q.Consume(working, workers,
		func(_ context.Context, it *queue.Item) error {
			h := held{
				path: path, node: it.ID(), token: it.Token(), done: it.Done(), err: it.Err,
				env: []string{fmt.Sprintf("ZKR_ATTEMPT=%d", it.Attempt())},
			}

			// Every program gets every signal, so each has a channel of its own.
			mine := all.join()
			defer all.leave(mine)
			if cause := context.Cause(working); cause != nil {
				return cause
			}
			err := a.runHeld(ctx, client, h, p, mine, bytes.NewReader(it.Data()))
			if err != nil {
				a.note("element %s: %v", it.ID(), err)
			}
			return err
		})

	if exit := (&exitError{}); errors.As(context.Cause(working), &exit) {
		return exit
	}

	// Without a server, an empty queue proves nothing.
	if errors.Is(context.Cause(working), errIdle) {
		if client.State() != protocol.Connected {
			return &exitError{status: exitUnreachable, err: fmt.Errorf("%s: no server answers, and there was nothing to do for %v", path, a.wait)}
		}

		a.note("%s: there was nothing to do for %v", path, a.wait)
		return nil
	}
	return cmp.Or(err, ctx.Err())
}

// errIdle is the cause if the work ends because there was nothing to do for --wait.
var errIdle = errors.New("nothing to do")

// A relay forwards signals to several commands. It ends the work after some time without commands.
type relay struct {
	limit time.Duration
	idle  *time.Timer

	mutex sync.Mutex
	all   map[signals]bool
}

// newRelay returns a relay with this limit. There is none if it is zero.
func newRelay(limit time.Duration) *relay {
	limit = cmp.Or(limit, math.MaxInt64)
	return &relay{limit: limit, idle: time.NewTimer(limit), all: make(map[signals]bool)}
}

func (r *relay) join() signals {
	r.mutex.Lock()
	defer r.mutex.Unlock()

	s := make(signals, 16)
	r.all[s] = true
	r.idle.Stop()
	return s
}

func (r *relay) leave(s signals) {
	r.mutex.Lock()
	defer r.mutex.Unlock()

	delete(r.all, s)
	if len(r.all) == 0 {
		r.idle.Reset(r.limit)
	}
}

// forward forwards signals until ctx ends. If a signal ends the work, it calls stop first. It also
// calls stop if there was no command for too long: a command that has joined by then goes on.
func (r *relay) forward(ctx context.Context, from signals, stop context.CancelCauseFunc) {
	for {
		select {
		case s := <-from:
			if ends(s) {
				stop(endedBy(s))
			}
			r.send(s)
		case <-r.idle.C:
			r.mutex.Lock()
			if len(r.all) == 0 {
				stop(errIdle)
			}
			r.mutex.Unlock()
		case <-ctx.Done():
			return
		}
	}
}

func (r *relay) send(s os.Signal) {
	r.mutex.Lock()
	defer r.mutex.Unlock()

	for to := range r.all {
		select {
		case to <- s:
		default: // the command has many signals waiting already
		}
	}
}

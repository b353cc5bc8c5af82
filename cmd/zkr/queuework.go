package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
)

func newQueueWorkCommand(a *app) *cobra.Command {
	workers, attempts := 1, 0
	var dead string
	cmd := &cobra.Command{
		Use:   "work PATH [flags] -- COMMAND [ARGUMENT…]",
		Short: "Run a command for each element of a queue",
		Long: `Work takes elements of the queue at PATH, and runs the command for each, with the element on its standard
input. If the status is 0, the element is done. Otherwise it comes back, later with each attempt. If it is
lost, the command is ended, another worker gets the element, and work goes on.

Work goes on until it gets a signal, which the commands get too. With --wait it also ends once it has had
nothing to do for so long, with status 0, or with 69 if no server answers then.
The environment has ZKR_NODE, the ID of the element, ZKR_ATTEMPT, and ZKR_TOKEN, its fencing token.` + holdHelp,
		Args: operandsAndCommand("PATH"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if workers < 1 {
				return usagef("--workers %d: must be at least 1", workers)
			}
			if (dead == "") != (attempts == 0) || attempts < 0 {
				return usagef("--dead PATH and --attempts N: give both, and at least one attempt, or none")
			}
			if dead == args[0] {
				return usagef("--dead %s: a queue cannot be its own", dead)
			}
			if dead != "" {
				if err := protocol.ValidatePath(dead); err != nil {
					return usagef("--dead %s: %w", dead, err)
				}
			}
			return a.work(cmd.Context(), workers, args[0], args[1:], func(c *protocol.Client) []queue.Option {
				if dead == "" {
					return nil
				}
				return []queue.Option{queue.WithDeadLetter(queue.New(c, dead), attempts)}
			})
		},
	}
	cmd.Flags().IntVar(&workers, "workers", 1, "how many commands run at a time")
	cmd.Flags().StringVar(&dead, "dead", "", "queue for elements that have failed --attempts times")
	cmd.Flags().IntVar(&attempts, "attempts", 0, "how often an element is tried before it goes to --dead")
	a.addGraceFlag(cmd)
	return cmd
}

func (a *app) work(
	ctx context.Context, workers int, path string, argv []string, options func(*protocol.Client) []queue.Option,
) error {
	p, err := lookUp(argv)
	if err != nil {
		return err
	}
	all := &relay{}
	signals := listen()
	defer signals.stop()

	waiting, end := signals.ending(ctx)
	client, err := a.connectToRun(waiting)
	if interrupted := end(); interrupted != nil {
		err = interrupted
	}
	if client != nil {
		defer client.Close()
	}
	if err != nil {
		return err
	}

	// From now on signals end the work, and go to the commands.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go all.forward(ctx, signals, stop)
	idle := newIdle(a.wait, func() { stop(errIdle) })
	defer idle.stop()
	err = queue.New(client, path, options(client)...).Consume(working, workers,
		func(_ context.Context, it *queue.Item) error {
			h := held{
				path: path, node: it.ID(), token: it.Token(), done: it.Done(), err: it.Err,
				env: []string{fmt.Sprintf("ZKR_ATTEMPT=%d", it.Attempt())},
			}
			mine := all.join()
			defer all.leave(mine)
			idle.begin()
			defer idle.end()
			if cause := context.Cause(working); cause != nil && !errors.Is(cause, errIdle) {
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
	if errors.Is(context.Cause(working), errIdle) {
		if client.State() != protocol.Connected {
			return &exitError{exitUnreachable, fmt.Errorf("%s: no server answers, and there was nothing to do for %v", path, a.wait)}
		}
		a.note("%s: there was nothing to do for %v", path, a.wait)
		return nil
	}
	return err
}

// errIdle is the cause of the end of work that has had nothing to do for --wait.
var errIdle = errors.New("nothing to do")

// An idle calls a function once nothing has been under way for some time.
type idle struct {
	limit time.Duration

	mutex    sync.Mutex
	underWay int
	timer    *time.Timer // nil if there is no limit
}

func newIdle(limit time.Duration, over func()) *idle {
	i := &idle{limit: limit}
	if limit > 0 {
		i.timer = time.AfterFunc(limit, over)
	}
	return i
}

func (i *idle) begin() { i.count(1) }

func (i *idle) end() { i.count(-1) }

func (i *idle) count(change int) {
	i.mutex.Lock()
	defer i.mutex.Unlock()

	i.underWay += change
	switch {
	case i.timer == nil:
	case i.underWay == 0:
		i.timer.Reset(i.limit)
	default:
		i.timer.Stop()
	}
}

func (i *idle) stop() { i.begin() }

// A relay hands signals on to several commands.
type relay struct {
	mutex sync.Mutex
	all   map[signals]bool
}

func (r *relay) join() signals {
	r.mutex.Lock()
	defer r.mutex.Unlock()

	s := make(signals, 16)
	if r.all == nil {
		r.all = make(map[signals]bool)
	}
	r.all[s] = true
	return s
}

func (r *relay) leave(s signals) {
	r.mutex.Lock()
	defer r.mutex.Unlock()

	delete(r.all, s)
}

// forward hands on what comes, until ctx ends. Before that it calls stop for a signal that ends the
// work.
func (r *relay) forward(ctx context.Context, from signals, stop context.CancelCauseFunc) {
	for {
		select {
		case s := <-from:
			if ends(s) {
				stop(endedBy(s))
			}
			r.send(s)
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
		default: // it has many to handle already
		}
	}
}

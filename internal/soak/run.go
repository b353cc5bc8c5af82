package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// run runs one piece, appends its samples to those of earlier ones, plots them all and judges each
// piece.
func run(ctx context.Context, out io.Writer, o options) error {
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	record, err := openRecord(filepath.Join(o.out, "samples.csv"))
	if err != nil {
		return err
	}
	defer record.Close()

	left := o.whole - record.elapsed()
	if o.piece > 0 {
		left = min(left, o.piece)
	}
	var broken error
	if left > 0 {
		broken = runPiece(ctx, out, o, record, left)
	}
	fmt.Fprintf(out, "%v of %v\n\n", record.elapsed().Round(time.Second), o.whole)
	return errors.Join(broken, plotAll(o.out, record.samples), judgeAll(out, record.samples))
}

// runPiece works for a time, with samples. Its error says what the recipes did wrong.
func runPiece(ctx context.Context, out io.Writer, o options, record *record, length time.Duration) (err error) {
	server, err := startServer(o.server)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	s, err := newSoak(ctx, server.address)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "piece %d: %d workers for %v on %s\n", record.piece, len(s.workers), length, server.where)

	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	finished := make(chan error, 1)
	go func() { finished <- s.work(ctx) }()

	ticker := time.NewTicker(o.every)
	defer ticker.Stop()
	for began := time.Now(); ; {
		select {
		case <-ticker.C:
			if o.atSample != nil {
				o.atSample()
			}
			if err := record.add(time.Since(began), s, server); err != nil && ctx.Err() == nil {
				cancel()
				return errors.Join(err, <-finished)
			}
		case err := <-finished:
			s.tell(out)
			return errors.Join(err, s.idle(), s.close())
		}
	}
}

// A soak has the clients, each over a network of its own, and the work.
type soak struct {
	address string
	nets    []*network
	clients []*protocol.Client
	workers []*worker
}

// sessionTimeout is short, so that many sessions are lost.
const sessionTimeout = 3 * time.Second

func newSoak(ctx context.Context, address string) (*soak, error) {
	s := &soak{address: address}
	for i := range clients {
		n := newNetwork()
		c, err := protocol.Connect(ctx, address, protocol.WithDialer(n.dial), protocol.WithSessionTimeout(sessionTimeout))
		if err != nil {
			return nil, errors.Join(err, s.close())
		}
		s.nets = append(s.nets, n)
		s.clients = append(s.clients, c)
		s.workers = append(s.workers, workersOf(s, i, c)...)
	}
	return s, nil
}

// work lets all workers work until ctx ends or one returns an error that no fault explains.
func (s *soak) work(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var busy sync.WaitGroup
	for _, w := range s.workers {
		busy.Go(func() {
			if err := w.work(ctx); err != nil {
				cancel(err)
			}
		})
	}
	busy.Go(func() { disturb(ctx, s.nets) })
	busy.Wait()

	if cause := context.Cause(ctx); !errors.Is(cause, ctx.Err()) {
		return cause
	}
	return nil
}

// turns returns how many turns of all workers have succeeded.
func (s *soak) turns() (n int64) {
	for _, w := range s.workers {
		n += w.done.Load()
	}
	return n
}

// tell prints how many turns of each kind have succeeded.
func (s *soak) tell(out io.Writer) {
	sums := make(map[string]int64)
	for _, w := range s.workers {
		sums[w.name] += w.done.Load()
	}
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		fmt.Fprintf(out, "  %8d  %s\n", sums[name], name)
	}
}

// idle returns an error with the workers that have not succeeded once.
func (s *soak) idle() error {
	var names []string
	for _, w := range s.workers {
		if w.done.Load() == 0 && !slices.Contains(names, w.name) {
			names = append(names, w.name)
		}
	}
	if names == nil {
		return nil
	}
	return fmt.Errorf("no progress of %s", strings.Join(names, ", "))
}

func (s *soak) close() (err error) {
	for _, c := range s.clients {
		err = errors.Join(err, c.Close())
	}
	return err
}

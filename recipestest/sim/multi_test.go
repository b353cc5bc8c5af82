package sim_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest/sim"
)

// Holders of a lock write to a log beside it, several transactions at a time. Each is there once if
// Multi says so, or perhaps if its outcome is not known, and never after another error.
func TestSimFencedWrites(t *testing.T) {
	sim.Run(t, func(w *sim.World) {
		log := &fencedLog{path: w.Path + "-log", written: make(map[string]error)}
		operatorAt(w, log.path)
		held := w.Exclusive("the lock")
		contend(w, 1+w.Rand.IntN(3), func(c *sim.Client) (int, func(context.Context, visit) error) {
			m := lock.New(c.Client, w.Path)
			return 1, func(ctx context.Context, v visit) error {
				var writing sync.WaitGroup
				defer writing.Wait()
				return hold(ctx, c, v, held.Begin, func(wait context.Context) (*lock.Lease, error) {
					l, err := m.Lock(wait)
					if err == nil {
						for range 1 + v.pick%3 {
							writing.Go(func() { log.write(ctx, c, w.Timeout, l) })
						}
					}
					return l, err
				}, func(l *lock.Lease, ctx context.Context) error {
					if v.pick%2 == 0 {
						writing.Wait()
					}
					return l.Unlock(ctx)
				})
			}
		})
		w.Finally("each write is there once, or not at all", func(context.Context) error {
			children, _, err := operatorAt(w, log.path).Conn().Children(log.path)
			if err != nil {
				return err
			}
			return log.check(children)
		})
	}, sim.WithoutFaults(sim.Deletion))
}

type fencedLog struct {
	path string

	mu      sync.Mutex // protects written
	begun   int
	written map[string]error // what Multi has returned for each write, if it has returned
}

func (f *fencedLog) write(ctx context.Context, c *sim.Client, timeout time.Duration, l *lock.Lease) {
	for range 1 + c.Rand.IntN(4) {
		c.Sleep(ctx, c.Upto(timeout/4))
		f.mu.Lock()
		f.begun++
		id := fmt.Sprint("w", f.begun)
		f.written[id] = protocol.ErrUncertain // if the process dies
		f.mu.Unlock()

		bound, cancel := context.WithTimeout(ctx, c.Upto(4*timeout))
		answers, err := l.Multi(bound,
			&zk.CreateRequest{Path: f.path + "/" + id + "-", Flags: zk.FlagSequence},
			&zk.SetDataRequest{Path: f.path, Data: []byte(id), Version: -1})
		cancel()
		if err == nil && !strings.HasPrefix(answers[0].String, f.path+"/"+id+"-") {
			err = fmt.Errorf("%q was created for %s", answers[0].String, id)
		}
		f.mu.Lock()
		f.written[id] = err
		f.mu.Unlock()
	}
}

func (f *fencedLog) check(children []string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	times := make(map[string]int)
	for _, child := range children {
		id, _, _ := strings.Cut(child, "-")
		times[id]++
	}
	for id, err := range f.written {
		least, most := 0, 0
		switch {
		case err == nil:
			least, most = 1, 1
		case errors.Is(err, protocol.ErrUncertain):
			most = 1
			if errors.Is(err, protocol.ErrLost) {
				return fmt.Errorf("%s: both outcomes at once: %w", id, err)
			}
		case errors.Is(err, protocol.ErrLost), errors.Is(err, protocol.ErrReleased), errors.Is(err, context.DeadlineExceeded),
			errors.Is(err, context.Canceled), errors.Is(err, protocol.ErrClosed):
		default:
			return fmt.Errorf("%s: %w", id, err)
		}
		if n := times[id]; n < least || n > most {
			return fmt.Errorf("%s was done %d times: %w", id, n, err)
		}
	}
	return nil
}

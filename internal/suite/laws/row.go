package laws

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// A kind says how an M is made whose verbs acquire an H.
type kind[M any, H Hold] struct {
	own  string // matches the nodes of those who hold or wait
	make func(*Stage) M
	back func(H, context.Context) error
}

// with returns the kind with another way to make an M.
func (k kind[M, H]) with(make func(*Stage) M) kind[M, H] {
	k.make = make
	return k
}

// acquiring is a verb that acquires an H.
func (k kind[M, H]) acquiring(verb func(M, context.Context) (H, error)) func(*Stage) Verb {
	return func(s *Stage) Verb {
		m := k.make(s)
		return Verb{
			Call: func(ctx context.Context) (*Held, error) { return held(k.back)(verb(m, ctx)) },
			Own:  k.own,
		}
	}
}

// doing is a verb that calls a function while it holds an H.
func (k kind[M, H]) doing(verb func(M, context.Context, func(context.Context, H) error) error) func(*Stage) Verb {
	return running(func(s *Stage) func(context.Context, func()) error {
		m := k.make(s)
		return func(ctx context.Context, run func()) error {
			return verb(m, ctx, func(context.Context, H) error { run(); return nil })
		}
	})
}

// returning is a verb that gives back an H. The client has acquired it before the call.
func (k kind[M, H]) returning(acquire func(M, context.Context) (H, error), back func(H, context.Context) error) func(*Stage) Verb {
	return func(s *Stage) Verb {
		m := k.make(s)
		var h H
		return Verb{
			Before: func() { h = must(acquire(m, s.ctx)) },
			Call:   call(func(ctx context.Context) error { return back(h, ctx) }),
			Effect: func() int { return -len(s.Own(k.own)) },
			Loose:  true,
		}
	}
}

// using is a verb of an H that the client has acquired before the call, and keeps.
func (k kind[M, H]) using(acquire func(M, context.Context) (H, error), verb func(H, context.Context) error) func(*Stage) Verb {
	return func(s *Stage) Verb {
		m := k.make(s)
		var h H
		return Verb{
			Before: func() { h = must(acquire(m, s.ctx)) },
			Call: func(ctx context.Context) (*Held, error) {
				return &Held{h, func(ctx context.Context) error { return k.back(h, ctx) }}, verb(h, ctx)
			},
			Loose: true,
		}
	}
}

// fencing is a verb of an H that writes while that is held: to a node, and to another one below it.
func (k kind[M, H]) fencing(acquire func(M, context.Context) (H, error), multi func(H, context.Context, ...any) ([]zk.MultiResponse, error)) func(*Stage) Verb {
	return func(s *Stage) Verb {
		node := s.Path + "/written"
		v := k.using(acquire, func(h H, ctx context.Context) error {
			answers, err := multi(h, ctx, &zk.SetDataRequest{Path: node, Version: -1}, &zk.CreateRequest{Path: node + "/x-", Flags: zk.FlagSequence})
			if err == nil && (len(answers) != 2 || answers[0].Stat == nil || !strings.HasPrefix(answers[1].String, node+"/x-0")) {
				err = fmt.Errorf("answers %v", answers)
			}
			return err
		})(s)

		ready := v.Before
		v.Before = func() {
			ready()
			if err := must(recipe.SessionOf(s.ctx, s.Client)).Create(s.ctx, node, nil, 0); !errors.Is(err, zk.ErrNodeExists) {
				check(err)
			}
		}

		v.Effect = func() int {
			n := s.Count("^/written/")
			if n != s.Versions("^/written$") && !s.gone.Load() {
				return -1 // one without the other
			}
			return n
		}

		v.Loose = false
		return v
	}
}

// about is a verb about an H of the other client, given its node. The other client acquires it
// before the call (a new one each time).
func (k kind[M, H]) about(acquire func(M, context.Context) (H, error), verb func(m M, ctx context.Context, node string) error) func(*Stage) Verb {
	return func(s *Stage) Verb {
		m, theirs := k.make(s), k.make(s.other())
		var h H
		taken := false
		back := func() {
			if taken {
				k.back(h, context.Background())
			}
		}
		s.Cleanup(back)
		return Verb{
			Before: func() { back(); h, taken = must(acquire(theirs, s.ctx)), true },
			Call:   call(func(ctx context.Context) error { return verb(m, ctx, any(h).(interface{ Node() string }).Node()) }),
			About:  func(ctx context.Context, node string) error { return verb(m, ctx, node) },
			Loose:  true,
		}
	}
}

// breaking is about for a verb that deletes the node.
func (k kind[M, H]) breaking(acquire func(M, context.Context) (H, error), verb func(m M, ctx context.Context, node string) error) func(*Stage) Verb {
	return seen((*Stage).fewer, k.own, k.about(acquire, verb))
}

// listing is a verb that returns the contenders, of which there is one.
func listing[M, C any, H Hold](k kind[M, H], acquire func(M, context.Context) (H, error), verb func(M, context.Context) ([]C, error)) func(*Stage) Verb {
	return k.about(acquire, func(m M, ctx context.Context, _ string) error {
		all, err := verb(m, ctx)
		return found(1, len(all), err)
	})
}

// seen gives a verb another Effect: a count of the nodes that match.
func seen(by func(*Stage, string) int, pattern string, verb func(*Stage) Verb) func(*Stage) Verb {
	return changed(verb, func(s *Stage, v *Verb) {
		v.Effect = func() int { return by(s, pattern) }
	})
}

func (s *Stage) fewer(pattern string) int      { return -s.Count(pattern) }
func (s *Stage) fewerOwned(pattern string) int { return -len(s.Own(pattern)) }

// only is the error of a call whose result does not matter.
func only[V any](_ V, err error) error { return err }

// found makes it an error that a verb has not found as many as there are.
func found(want, got int, err error) error {
	if err == nil && got != want {
		return fmt.Errorf("finds %d", got)
	}
	return empty(got, err)
}

// empty makes it an error that a call returns something with its error.
func empty(got int, err error) error {
	if err != nil && got > 0 {
		return fmt.Errorf("returns %d with: %v", got, err)
	}
	return err
}

// behind is a verb that waits for the other client. That client acquires something with first, and
// gives it back after a second.
func behind(verb, first func(*Stage) Verb) func(*Stage) Verb {
	return changed(verb, func(s *Stage, v *Verb) {
		theirs := first(s.other())
		var ahead *Held
		v.Before = func() { ahead = must(theirs.Call(s.ctx)) }
		v.Beside = func(context.Context) { ahead.Back(context.Background()) }
	})
}

// running is a verb that calls a function once, which calls run.
func running(verb func(*Stage) func(ctx context.Context, run func()) error) func(*Stage) Verb {
	return func(s *Stage) Verb {
		do, runs := verb(s), 0
		return Verb{
			Call:   call(func(ctx context.Context) error { return do(ctx, func() { runs++ }) }),
			Effect: func() int { return runs },
			Loose:  true,
		}
	}
}

// rewritten counts how often the nodes that match have been set. In an outage they may go.
func (s *Stage) rewritten(pattern string) int {
	if s.Count(pattern) == 0 {
		s.gone.Store(true)
	}
	return s.Versions(pattern)
}

// rewriting is a verb that sets the data of a node of the other client's.
func rewriting(pattern string, verb func(*Stage) Verb) func(*Stage) Verb {
	return seen((*Stage).rewritten, pattern, changed(verb, func(s *Stage, v *Verb) {
		v.Again = true
	}))
}

// A fenced Hold has Multi.
type fenced interface {
	Hold
	Multi(ctx context.Context, ops ...any) ([]zk.MultiResponse, error)
}

// A job is a call of a function that goes on until it is given back.
type job struct {
	fenced
	stop  func()
	ended chan error
}

// begin returns once do has called its function, or its error.
func begin[H fenced](do func(work func(context.Context, H) error) error) (*job, error) {
	begun, stop, ended := make(chan H, 1), make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(ended)
		ended <- do(func(held context.Context, h H) error {
			select {
			case begun <- h:
			default: // it was lost, and is held again
			}
			select {
			case <-stop:
				return errEnough
			case <-held.Done():
				return held.Err()
			}
		})
	}()
	select {
	case h := <-begun:
		return &job{h, sync.OnceFunc(func() { close(stop) }), ended}, nil
	case err := <-ended:
		return nil, err
	}
}

func (j *job) end(context.Context) error {
	j.stop()
	<-j.ended
	return nil
}

// stoppable is context.WithCancel for a ctx that may be nil.
func stoppable(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx == nil {
		return nil, func() {}
	}
	return context.WithCancel(ctx)
}

// errEnough ends verbs that go on until a function fails.
var errEnough = errors.New("enough")

// enough makes errEnough no error, if that is all there is.
func enough(err error) error {
	if err != nil && class(err) == errEnough.Error() {
		return nil
	}
	return err
}

// worked is the error of a verb that goes on until its work or ctx ends.
func worked(ctx context.Context, err error) error {
	if err == nil {
		return ctx.Err()
	}
	return enough(err)
}

// first returns the first value of a sequence that is wanted.
func first[V any](all iter.Seq2[V, error], wanted func(V) bool) error {
	for v, err := range all {
		if err != nil || wanted(v) {
			return err
		}
	}
	return context.Canceled // which ends a sequence without an error
}

// other is the stage with the clients exchanged.
func (s *Stage) other() *Stage {
	other := *s
	other.Client = s.Other()
	return &other
}

// await waits until n nodes match.
func (s *Stage) await(pattern string, n int) {
	for began := time.Now(); s.Count(pattern) < n; time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > limit {
			check(fmt.Errorf("no %d nodes like %s", n, pattern))
		}
	}
}

// changed is a verb of which something is different.
func changed(verb func(*Stage) Verb, change func(s *Stage, v *Verb)) func(*Stage) Verb {
	return func(s *Stage) Verb {
		v := verb(s)
		change(s, &v)
		return v
	}
}

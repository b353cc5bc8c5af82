package laws

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/once"
)

// doOnce is Do with a key that is new for each call.
func doOnce(s *Stage, opts ...once.Option) (v Verb, key func() string) {
	o, n, runs := once.New(s.Client, s.Path, opts...), 0, 0
	key = func() string { return fmt.Sprint("key", n) }
	return Verb{
		Before: func() { n++ },
		Call: call(func(ctx context.Context) error {
			_, err := o.Do(ctx, key(), func(context.Context, *once.Run) error { runs++; return nil })
			return err
		}),
		Effect: func() int { return runs },
		Loose:  true,
	}, key
}

// aboutKey is a verb about a key that the other client has made done before the call.
func aboutKey(s *Stage, verb func(ctx context.Context, o *once.Once, key string) error) Verb {
	o, n := once.New(s.Client, s.Path), 0
	key := func() string { return fmt.Sprint("key", n) }
	return Verb{
		Loose: true,
		Before: func() {
			n++
			must(once.New(s.Other(), s.Path).Do(s.ctx, key(), func(context.Context, *once.Run) error { return nil }))
		},
		Call: call(func(ctx context.Context) error { return verb(ctx, o, key()) }),
	}
}

// A jobRun is a run that goes on until it is given back.
type jobRun struct {
	*once.Run
	stop  func()
	ended chan struct{}
}

// runs are those of keys that are new each time.
var runs = kind[*once.Once, *jobRun]{
	own:  "-run-",
	make: func(s *Stage) *once.Once { return once.New(s.Client, s.Path) },
	back: func(r *jobRun, _ context.Context) error { r.stop(); <-r.ended; return nil },
}

func run(o *once.Once, ctx context.Context) (*jobRun, error) {
	begun, failed := make(chan *jobRun), make(chan error, 1)
	stop := make(chan struct{})
	r := &jobRun{stop: sync.OnceFunc(func() { close(stop) }), ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		_, err := o.Do(ctx, "key0", func(held context.Context, run *once.Run) error {
			r.Run = run
			begun <- r
			select {
			case <-stop:
			case <-held.Done():
			}
			return errEnough // so the key can be run again
		})
		failed <- err
	}()
	select {
	case r := <-begun:
		return r, nil
	case err := <-failed:
		return nil, err
	}
}

var onceRows = []Row{
	{"once.Run.Multi", runs.fencing(run, func(r *jobRun, ctx context.Context, ops ...any) ([]zk.MultiResponse, error) {
		return r.Multi(ctx, ops...)
	})},
	{"once.Once.Do", func(s *Stage) Verb { v, _ := doOnce(s); return v }},
	{"once.Once.Do and it is recorded", func(s *Stage) Verb {
		v, _ := doOnce(s)
		v.Effect, v.Loose = func() int { return s.Count("/done/key[0-9]+$") - s.Count("/open$") }, false
		return v
	}},
	{"once.Once.Do done before", func(s *Stage) Verb {
		v, key := doOnce(s)
		next := v.Before
		v.Before = func() {
			next()
			must(once.New(s.Other(), s.Path).Do(s.ctx, key(), func(context.Context, *once.Run) error { return nil }))
		}
		return v
	}},
	{"once.Once.Do run elsewhere", func(s *Stage) Verb {
		v, key := doOnce(s)
		next, end, done := v.Before, make(chan struct{}), make(chan struct{})
		v.Before = func() {
			next()
			begun := make(chan struct{})
			end, done = make(chan struct{}), make(chan struct{})
			go func() {
				defer close(done)
				once.New(s.Other(), s.Path).Do(s.ctx, key(), func(context.Context, *once.Run) error { close(begun); <-end; return errEnough })
			}()
			select {
			case <-begun:
			case <-done: // a process that has died had done it
			}
		}
		v.Beside = func(context.Context) { close(end); <-done }
		return v
	}},
	{"once.Once.Do and fn fails", func(s *Stage) Verb {
		o, n, runs := once.New(s.Client, s.Path), 0, 0
		return Verb{
			Before: func() { n++ },
			Call: call(func(ctx context.Context) error {
				_, err := o.Do(ctx, fmt.Sprint("key", n), func(context.Context, *once.Run) error { runs++; return errEnough })
				return enough(err)
			}),
			Effect: func() int { return runs },
			Loose:  true,
		}
	}},
	{"once.Once.Done", func(s *Stage) Verb {
		return aboutKey(s, func(ctx context.Context, o *once.Once, key string) error {
			done, err := o.Done(ctx, key)
			if err == nil && !done {
				err = errors.New("not done")
			}
			return err
		})
	}},
	{"once.Once.Forget", func(s *Stage) Verb {
		v := aboutKey(s, func(ctx context.Context, o *once.Once, key string) error { return o.Forget(ctx, key) })
		v.Effect = func() int { return -s.Count("/done/key[0-9]+$") }
		return v
	}},
	{"once.Once.Keys", func(s *Stage) Verb {
		return aboutKey(s, func(ctx context.Context, o *once.Once, key string) error {
			return first(o.Keys(ctx), func(k once.Key) bool { return k.Name == key })
		})
	}},
	{"once.Once.Do with another key to forget", func(s *Stage) Verb { v, _ := doOnce(s, once.WithKeep(1)); return v }},
}

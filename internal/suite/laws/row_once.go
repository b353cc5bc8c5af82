package laws

import (
	"context"
	"errors"
	"fmt"

	"github.com/zkrecipes/zkrecipes/once"
)

// keyed is a verb about a key that is new for each call. Before comes before the call.
func keyed(before func(s *Stage, key string), verb func(o *once.Once, ctx context.Context, key string) error, opts ...once.Option) func(*Stage) Verb {
	return func(s *Stage) Verb {
		o, n := once.New(s.Client, s.Path, opts...), 0
		key := func() string { return fmt.Sprint("key", n) }
		return Verb{
			Loose:  true,
			Before: func() { n++; before(s, key()) },
			Call:   call(func(ctx context.Context) error { return verb(o, ctx, key()) }),
		}
	}
}

// doOnce is Do with a function that fails or not.
func doOnce(before func(s *Stage, key string), fails error, opts ...once.Option) func(*Stage) Verb {
	return func(s *Stage) Verb {
		runs := 0
		v := keyed(before, func(o *once.Once, ctx context.Context, key string) error {
			_, err := o.Do(ctx, key, func(context.Context, *once.Run) error { runs++; return fails })
			return enough(err)
		}, opts...)(s)
		v.Effect = func() int { return runs }
		return v
	}
}

func unknown(*Stage, string) {}

// done makes a key done.
func done(s *Stage, key string) {
	must(once.New(s.Other(), s.Path).Do(s.ctx, key, func(context.Context, *once.Run) error { return nil }))
}

// runs are those of keys that are new each time.
var runs = kind[*once.Once, *job]{
	own:  "-run-",
	make: func(s *Stage) *once.Once { return once.New(s.Client, s.Path) },
	back: (*job).end,
}

func run(o *once.Once, ctx context.Context) (*job, error) {
	return begin(func(work func(context.Context, *once.Run) error) error {
		return only(o.Do(ctx, "key0", work))
	})
}

var onceRows = []Row{
	{"once.Run.Multi", runs.fencing(run, (*job).Multi)},
	{"once.Once.Do", doOnce(unknown, nil)},
	{"once.Once.Do and it is recorded", changed(doOnce(unknown, nil), func(s *Stage, v *Verb) {
		v.Effect, v.Loose = func() int { return s.Count("/done/key[0-9]+$") - s.Count("/open$") }, false
	})},
	{"once.Once.Do done before", doOnce(done, nil)},
	{"once.Once.Do run elsewhere", func(s *Stage) Verb {
		var end, ended chan struct{}
		v := doOnce(func(s *Stage, key string) {
			begun := make(chan struct{})
			end, ended = make(chan struct{}), make(chan struct{})
			go func() {
				defer close(ended)
				once.New(s.Other(), s.Path).Do(s.ctx, key, func(context.Context, *once.Run) error {
					close(begun)
					<-end
					return errEnough
				})
			}()
			select {
			case <-begun:
			case <-ended: // a process that has died had done it
			}
		}, nil)(s)
		v.Beside = func(context.Context) { close(end); <-ended }
		return v
	}},
	{"once.Once.Do and fn fails", doOnce(unknown, errEnough)},
	{"once.Once.Done", keyed(done, func(o *once.Once, ctx context.Context, key string) error {
		done, err := o.Done(ctx, key)
		if err == nil && !done {
			err = errors.New("not done")
		}
		return err
	})},
	{"once.Once.Forget", seen((*Stage).fewer, "/done/key[0-9]+$", keyed(done, (*once.Once).Forget))},
	{"once.Once.Keys", keyed(done, func(o *once.Once, ctx context.Context, key string) error {
		return first(o.Keys(ctx), func(k once.Key) bool { return k.Name == key })
	})},
	{"once.Once.Do with another key to forget", doOnce(unknown, nil, once.WithKeep(1))},
}

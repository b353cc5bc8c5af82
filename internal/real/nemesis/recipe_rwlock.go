package main

import (
	"github.com/zkrecipes/zkrecipes/rwlock"
)

func rwlockWork(w *worker) workload {
	m := rwlock.New(w.client, w.Path)
	return workload{step: func() error {
		kind, verb := "rlock", m.RLock
		if w.chance(2) {
			kind, verb = "lock", m.Lock
		}
		o, lease, err := acquire(w, kind, verb)
		if err != nil {
			return err
		}

		w.hold(o, lease, w.spell(), lease.Exclusive())
		if lease.Exclusive() && w.chance(3) {
			if o, lease, err = downgrade(w, o, lease); err != nil {
				return err
			}
		}
		_, err = w.release(o, lease, lease.Unlock)
		return err
	}}
}

// downgrade goes on as a reader. The writer's hold ends with it, even if it fails.
func downgrade(w *worker, writer *Op, lease *rwlock.Lease) (*Op, *rwlock.Lease, error) {
	ctx, cancel := w.effect()
	defer cancel()
	o := w.call("downgrade", "")
	reader, err := lease.Downgrade(ctx)
	writer.Over = w.now()
	w.tell(writer)
	if err != nil {
		w.release(writer, lease, lease.Unlock)
		return nil, nil, w.returns(o, err, Failed)
	}

	w.hold(o, reader, w.spell(), false)
	return o, reader, nil
}

// checkRWLock compares all pairs that include a writer.
func checkRWLock(r *Round, name string) error {
	if err := fenced(r, name, r.ops(name, "lock")); err != nil {
		return err
	}
	return alone(r.ops(name, "lock", "rlock", "downgrade"), func(a, b *Op) bool {
		// A writer that goes on as a reader keeps its token. Its two holds don't exclude each
		// other.
		goesOn := a.Kind == "lock" && b.Kind == "downgrade" && a.Token == b.Token && a.Client == b.Client
		return (a.Kind == "lock" || b.Kind == "lock") && !(goesOn && a.Held <= b.Begun)
	})
}

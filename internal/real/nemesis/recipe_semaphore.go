package main

import (
	"github.com/zkrecipes/zkrecipes/semaphore"
)

// permits returns how many of the clients can hold at a time: all but one.
func permits(clients int) int { return max(1, clients-1) }

func semaphoreWork(w *worker) workload {
	s := semaphore.New(w.client, w.Path, permits(w.Clients))
	return workload{step: func() error {
		o, p, err := acquire(w, "acquire", s.Acquire)
		if err != nil {
			return err
		}

		w.hold(o, p, w.spell(), false)
		_, err = w.release(o, p, p.Release)
		return err
	}}
}

func checkSemaphore(r *Round, name string) error {
	return atMost(permits(r.Clients), r.ops(name, "acquire"))
}

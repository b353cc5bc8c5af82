package queue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/zkrecipes/zkrecipes/internal/recipetest"
	"github.com/zkrecipes/zkrecipes/queue"
)

// A deed is what somebody does once, after a pause and with so much patience.
type deed struct {
	Pause, Patience time.Duration
	Verb            string
}

type schedule struct {
	Deeds   [][]deed
	Mishaps []recipetest.Mishap
}

func drawSchedule(t *rapid.T) schedule {
	var s schedule
	for range rapid.IntRange(2, 5).Draw(t, "clients") {
		var deeds []deed
		for range rapid.IntRange(1, 10).Draw(t, "deeds") {
			deeds = append(deeds, deed{
				Pause:    recipetest.DrawDuration(t, 3*time.Second, "pause"),
				Patience: recipetest.DrawDuration(t, 30*time.Second, "patience"),
				Verb:     rapid.SampledFrom([]string{"offer", "offer", "offer all", "take", "poll n", "ack", "nack"}).Draw(t, "verb"),
			})
		}
		s.Deeds = append(s.Deeds, deeds)
	}
	s.Mishaps = recipetest.DrawMishaps(t, len(s.Deeds))
	return s
}

func TestHistoriesUnderRandomFaultsAreThoseOfAQueue(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := drawSchedule(rt)
		var failure error
		synctest.Test(t, func(t *testing.T) { failure = play(t, s) })
		if failure != nil {
			rt.Fatalf("%v", failure)
		}
	})
}

// play runs a schedule in virtual time and checks what came of it.
func play(t *testing.T, s schedule) error {
	stage := recipetest.NewStage(t, len(s.Deeds))
	path := stage.Root(t) + "/q"
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var l ledger
	var wait sync.WaitGroup
	for i, deeds := range s.Deeds {
		q := queue.New(stage.Clients[i], path)
		wait.Go(func() {
			for j, d := range deeds {
				time.Sleep(d.Pause)
				patience, cancel := context.WithTimeout(ctx, d.Patience)
				l.do(patience, q, d.Verb, fmt.Sprintf("%d-%02d", i, j))
				cancel()
			}
		})
	}
	befallen := make(chan struct{})
	go func() {
		defer close(befallen)
		stage.Befall(ctx, s.Mishaps, nil)
	}()
	wait.Wait()
	cancel()
	<-befallen
	stage.Calm()
	for _, c := range stage.Clients {
		c.Close()
	}
	last, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	// What is reserved under a session that could not be closed comes back when that expires.
	time.Sleep(time.Minute)
	q := queue.New(stage.Client(t), path)
	left := drain(t, last, q)
	if n, err := q.Len(last); err != nil || n != 0 {
		return fmt.Errorf("%d are left for good: %w", n, err)
	}
	return l.check(left)
}

func (l *ledger) do(ctx context.Context, q *queue.Queue, verb, name string) {
	switch verb {
	case "offer":
		l.offer(ctx, q, name)
	case "offer all":
		both := []string{name + "a", name + "b"}
		_, err := q.OfferAll(ctx, [][]byte{[]byte(both[0]), []byte(both[1])})
		l.offeredAll(err, both...)
	case "take":
		data, err := q.Take(ctx)
		l.took(all(data), err)
	case "poll n":
		l.took(q.PollN(ctx, 3))
	default:
		l.work(ctx, q, strings.HasPrefix(verb, "n"))
	}
}

// gaveUp tells whether an operation has ended with its ctx.
func gaveUp(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

package batch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/zkrecipes/zkrecipes/internal/batch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func bubble(t *testing.T, test func(t *testing.T)) {
	t.Parallel()
	synctest.Test(t, test)
}

// A job is a request of these tests.
type job struct {
	batch.Request
	number int
	bytes  int
}

var (
	errUnknown = errors.New("outcome unknown")
	errHost    = errors.New("host is over")
	errRefused = errors.New("host takes no more work")
)

// A host runs goroutines. (If one is left, a bubble fails.)
type host struct{ over, refuses atomic.Bool }

var ended atomic.Int64 // goroutines of hosts

// quiet waits until nothing more happens at this moment. What goroutines that have ended wrote may
// be read afterwards.
func quiet() {
	synctest.Wait()
	ended.Load()
}

func (h *host) Start(work func(context.Context)) error {
	if h.refuses.Load() {
		return errRefused
	}
	go func() {
		work(context.Background())
		ended.Add(1)
	}()
	return nil
}

func (h *host) Err() error {
	if h.over.Load() {
		return errHost
	}
	return nil
}

// A printer executes jobs. Only the goroutine of its batcher uses what is below the batcher.
type printer struct {
	host host
	jobs *batch.Batcher[*job]

	print    func(jobs []*job) (executed bool, err error) // by default each batch takes a second
	batches  [][]*job
	executed []*job
	left     []*job
}

func newPrinter(limits batch.Limits) *printer {
	p := serving(limits, (*printer).serve)
	p.print = func([]*job) (bool, error) { time.Sleep(time.Second); return true, nil }
	return p
}

// serving returns a printer that calls round in each round.
func serving(limits batch.Limits, round func(p *printer, pending []*job)) *printer {
	p := &printer{}
	p.jobs = batch.New(&p.host, limits, func(context.Context) {
		for pending := range p.jobs.Rounds(nil) {
			round(p, pending)
		}
	}, func(_ *job, cause error) error { return fmt.Errorf("%w: %w", errUnknown, cause) })
	return p
}

func (p *printer) serve([]*job) {
	jobs := p.jobs.Collect(func(j *job, room *batch.Room) bool { return room.Take(1, j.bytes) })
	if len(jobs) == 0 {
		return // its ctx has ended meanwhile
	}
	p.batches = append(p.batches, jobs)
	executed, err := p.print(jobs)
	switch {
	case executed:
		p.executed = append(p.executed, jobs...)
		p.left = append(p.left, p.jobs.Answer(nil, jobs...)...)
	case err != nil:
		p.jobs.Answer(err, jobs...)
	default:
		p.jobs.Return(jobs)
	}
}

// sizes are those of the batches, once all is done.
func (p *printer) sizes() (all []int) {
	quiet()
	for _, jobs := range p.batches {
		all = append(all, len(jobs))
	}
	return all
}

// start hands in jobs one after the other, and returns their answers in that order.
func (p *printer) start(ctx context.Context, jobs ...*job) (answers []chan error) {
	for _, j := range jobs {
		answer := make(chan error, 1)
		answers = append(answers, answer)
		go func() { answer <- p.jobs.Do(ctx, j) }()
		quiet()
	}
	return answers
}

// sized returns jobs of so many bytes each, numbered from 0.
func sized(bytes ...int) (jobs []*job) {
	for i, n := range bytes {
		jobs = append(jobs, &job{number: i, bytes: n})
	}
	return jobs
}

var wide = batch.Limits{Count: 1000, Bytes: 1000}

func TestBatchesAreBounded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		limits batch.Limits
		bytes  []int
		want   []int
	}{
		"while one is under way":         {wide, []int{1, 1, 1, 1, 1, 1}, []int{1, 5}},
		"by count":                       {batch.Limits{Count: 3, Bytes: 100}, []int{1, 1, 1, 1, 1, 1, 1, 1}, []int{1, 3, 3, 1}},
		"by bytes":                       {batch.Limits{Count: 100, Bytes: 10}, []int{1, 5, 5, 1, 9, 1, 10}, []int{1, 2, 2, 1, 1}},
		"a large one is alone":           {batch.Limits{Count: 100, Bytes: 10}, []int{1, 50, 1, 2, 50, 3}, []int{1, 1, 2, 1, 1}},
		"a smaller one does not go past": {batch.Limits{Count: 100, Bytes: 10}, []int{1, 6, 7, 1}, []int{1, 1, 2}},
		"one is never too large":         {batch.Limits{Count: 100, Bytes: 10}, []int{1000, 1000}, []int{1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p, jobs := newPrinter(c.limits), sized(c.bytes...)
				for _, answer := range p.start(t.Context(), jobs...) {
					require.NoError(t, <-answer)
				}
				require.Equal(t, c.want, p.sizes())
				require.Equal(t, jobs, p.executed)
			})
		})
	}
}

// Callers that call again at once go together, although the first of them came alone.
func TestCallersThatCallAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPrinter(wide)
		var wait sync.WaitGroup
		for range 8 {
			wait.Go(func() {
				for range 50 {
					p.jobs.Do(t.Context(), &job{})
				}
			})
		}
		wait.Wait()
		require.Less(t, len(p.sizes()), 75) // it would be 100 if they went in two groups
	})
}

func TestRequestThatWasNotSentIsWithdrawn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPrinter(wide)
		first := p.start(t.Context(), &job{})
		ctx, cancel := context.WithCancelCause(t.Context())
		second := p.start(ctx, &job{number: 1})
		cancel(errors.New("enough"))
		quiet() // no time passes

		err := <-second[0]
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorContains(t, err, "enough")
		require.NotErrorIs(t, err, errUnknown)
		require.NoError(t, <-first[0])
		require.Equal(t, []int{1}, p.sizes())
	})
}

// An expired is a context that says so when it is asked, and closes no channel.
type expired struct {
	context.Context
	over *bool
}

func (e expired) Err() error {
	if *e.over {
		return context.DeadlineExceeded
	}
	return nil
}

// The function that serves doesn't see such a request, is not asked for another round by it, and
// doesn't wait for Woken any more.
func TestRequestThatIsFoundExpired(t *testing.T) {
	t.Parallel()
	for name, look := range map[string]func(*printer) []*job{
		"pending": func(p *printer) []*job { return p.jobs.Pending() },
		"collected": func(p *printer) []*job {
			return p.jobs.Collect(func(*job, *batch.Room) bool { return true })
		},
		"in the next round": nil,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var over bool
				var seen []*job
				rounds := 0
				p := serving(wide, func(p *printer, pending []*job) {
					over = true
					if rounds++; rounds > 1 {
						p.jobs.Answer(nil, pending...)
					} else if look != nil {
						seen = look(p)
						<-p.jobs.Woken()
					}
				})
				require.Equal(t, context.DeadlineExceeded, p.jobs.Do(expired{t.Context(), &over}, &job{}))
				quiet()
				require.Equal(t, 1, rounds)
				require.Empty(t, seen)
			})
		})
	}
}

func TestGraceForARequestThatWasSent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ends time.Duration // before the batch does
		want error
	}{
		"a moment is waited": {batch.Grace / 2, nil},
		"not for long":       {2 * batch.Grace, errUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := newPrinter(wide)
				p.print = func([]*job) (bool, error) {
					time.Sleep(time.Second - c.ends/2)
					p.jobs.Pending() // which answers only what wasn't sent
					time.Sleep(c.ends / 2)
					return true, nil
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second-c.ends)
				defer cancel()
				j := &job{}
				answer := <-p.start(ctx, j)[0]
				require.ErrorIs(t, answer, c.want)
				if c.want != nil {
					require.ErrorIs(t, answer, context.DeadlineExceeded)
				}
				time.Sleep(time.Second)
				quiet()
				require.Equal(t, c.want != nil, slices.Contains(p.left, j))
			})
		})
	}
}

// A batch that is returned has not sent its requests. One that goes then wakes the function.
func TestReturnedRequestHasNoUnknownOutcome(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := serving(wide, func(p *printer, _ []*job) {
			jobs := p.jobs.Collect(func(*job, *batch.Room) bool { return true })
			time.Sleep(time.Second)
			p.jobs.Return(jobs)
			<-p.jobs.Woken()
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second-batch.Grace/2)
		defer cancel()
		require.Equal(t, context.DeadlineExceeded, <-p.start(ctx, &job{})[0])
	})
}

func TestLostHostHandsRequestsBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPrinter(wide)
		answers := p.start(t.Context(), sized(1, 1, 1)...)
		p.host.over.Store(true)
		require.NoError(t, <-answers[0]) // which was under way
		require.ErrorIs(t, <-answers[1], errHost)
		require.ErrorIs(t, <-answers[2], errHost)
		require.ErrorIs(t, p.jobs.Do(t.Context(), &job{}), errHost)
		quiet()

		p.host.refuses.Store(true)
		require.ErrorIs(t, p.jobs.Do(t.Context(), &job{}), errRefused)
		require.ErrorIs(t, p.jobs.Do(t.Context(), &job{}), errRefused)
	})
}

// A function that serves and gives up strands no caller.
func TestLoopThatIsLeftEarly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := &printer{}
		p.jobs = batch.New[*job](&p.host, wide, func(context.Context) {
			for range p.jobs.Rounds(nil) {
				time.Sleep(time.Second)
				return
			}
		}, nil)
		for range 2 {
			for _, answer := range p.start(t.Context(), sized(1, 1)...) {
				require.ErrorContains(t, <-answer, "served")
			}
		}
	})
}

// A function that cannot answer yet is woken by a request that comes, by one that goes, and by
// Wake.
func TestWoken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		woken := 0
		p := serving(wide, func(p *printer, _ []*job) {
			if pending := p.jobs.Pending(); len(pending) == 2 {
				p.jobs.Answer(nil, pending...)
				return
			}
			<-p.jobs.Woken()
			woken++
		})
		ctx, cancel := context.WithCancel(t.Context())
		going := p.start(ctx, &job{})
		p.jobs.Wake()
		quiet()
		require.Equal(t, 1, woken)
		cancel()
		require.ErrorIs(t, <-going[0], context.Canceled)
		quiet()

		for _, answer := range p.start(t.Context(), sized(1, 1)...) {
			require.NoError(t, <-answer)
		}
	})
}

// A plan is what a random test does with one request.
type plan struct {
	starts time.Duration
	limit  time.Duration // until its ctx ends, 0: never
	bytes  int
}

// Whatever the callers, the batches and the host do, each request is answered once and executed
// once at most, as its answer says. Order and limits are kept, and no goroutine is left.
func TestEachRequestIsAnsweredOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		limits := batch.Limits{
			Count: rapid.IntRange(1, 5).Draw(rt, "count"),
			Bytes: rapid.IntRange(1, 20).Draw(rt, "bytes"),
		}
		plans := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) plan {
			return plan{
				time.Duration(rapid.IntRange(0, 20).Draw(rt, "pause")) * 10 * time.Millisecond,
				time.Duration(rapid.SampledFrom([]int{0, 0, 1, 30, 100, 300}).Draw(rt, "limit")) * time.Millisecond,
				rapid.IntRange(0, 30).Draw(rt, "size"),
			}
		}), 1, 30).Draw(rt, "requests")
		for i := range plans { // no two arrive at the same time, so that their order is known
			plans[i].starts += time.Microsecond
			if i > 0 {
				plans[i].starts += plans[i-1].starts
			}
		}
		outcomes := rapid.SliceOfN(rapid.IntRange(0, 9), 1, 20).Draw(rt, "outcomes")
		lasts := time.Duration(rapid.IntRange(1, 2*len(plans)+1).Draw(rt, "host")) * 100 * time.Millisecond

		var failure error
		synctest.Test(t, func(t *testing.T) { failure = play(t, limits, plans, outcomes, lasts) })
		if failure != nil {
			rt.Fatal(failure)
		}
	})
}

func play(t *testing.T, limits batch.Limits, plans []plan, outcomes []int, lasts time.Duration) error {
	errBatch := errors.New("batch failed")
	p := newPrinter(limits)
	p.print = func(jobs []*job) (bool, error) {
		outcome := outcomes[len(p.batches)%len(outcomes)]
		time.Sleep(time.Duration(outcome*20) * time.Millisecond)
		switch outcome {
		case 7, 8:
			return false, nil
		case 9:
			return false, errBatch
		default:
			return true, nil
		}
	}
	host := time.AfterFunc(lasts, func() { p.host.over.Store(true) })
	defer host.Stop()

	var wait sync.WaitGroup
	answers := make([]error, len(plans))
	for i, plan := range plans {
		wait.Go(func() {
			time.Sleep(plan.starts)
			ctx := t.Context()
			if plan.limit > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, plan.limit)
				defer cancel()
			}
			answers[i] = p.jobs.Do(ctx, &job{number: i, bytes: plan.bytes})
		})
	}
	wait.Wait()
	time.Sleep(time.Second) // the last batch may be of a caller that has left
	quiet()

	executed := make([]int, len(plans))
	for i, j := range p.executed {
		executed[j.number]++
		if i > 0 && p.executed[i-1].number >= j.number {
			return fmt.Errorf("%d after %d", j.number, p.executed[i-1].number)
		}
	}
	for i, err := range answers {
		var most, least int
		switch {
		case err == nil:
			most, least = 1, 1
		case errors.Is(err, errUnknown):
			most = 1
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, errHost), errors.Is(err, errBatch):
		default:
			return err
		}
		if n := executed[i]; n < least || n > most {
			return fmt.Errorf("request %d: %v, and executed %d times", i, err, n)
		}
	}
	for _, jobs := range p.batches {
		bytes := 0
		for _, j := range jobs {
			bytes += j.bytes
		}
		if len(jobs) > 1 && (len(jobs) > limits.Count || bytes > limits.Bytes) {
			return fmt.Errorf("a batch of %d with %d bytes", len(jobs), bytes)
		}
	}
	return nil
}

// Idle returns once a request is pending, or when the time has passed.
func TestIdle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		idle := make(map[time.Duration]bool)
		p := serving(wide, func(p *printer, pending []*job) {
			p.jobs.Answer(nil, pending...)
			began := time.Now()
			alone := p.jobs.Idle(context.Background(), time.Second)
			idle[time.Since(began)] = alone
		})
		require.NoError(t, p.jobs.Do(t.Context(), &job{}))
		time.Sleep(time.Second / 4)
		require.NoError(t, p.jobs.Do(t.Context(), &job{}))
		time.Sleep(time.Minute)
		quiet()
		require.Equal(t, map[time.Duration]bool{time.Second / 4: false, time.Second: true}, idle)
	})
}

// A fleeting context ends, without a signal, once it has been asked.
type fleeting struct {
	context.Context
	asked bool
}

func (f *fleeting) Err() error {
	if f.asked {
		return context.Canceled
	}
	f.asked = true
	return nil
}

// A request ends the rest, and is gone before the next round. What the rest cleans up doesn't stay.
func TestRequestThatIsGoneBeforeItsRound(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var rests []bool
		p := &printer{}
		p.jobs = batch.New[*job](&p.host, wide, func(life context.Context) {
			for pending := range p.jobs.Rounds(func() bool {
				rests = append(rests, p.jobs.Idle(life, time.Second))
				return rests[len(rests)-1]
			}) {
				p.jobs.Answer(nil, pending...)
			}
		}, nil)
		require.NoError(t, p.jobs.Do(t.Context(), &job{}))
		quiet()
		require.ErrorIs(t, p.jobs.Do(&fleeting{Context: context.Background()}, &job{}), context.Canceled)
		time.Sleep(time.Minute)
		quiet()
		require.Equal(t, []bool{false, true}, rests)
	})
}

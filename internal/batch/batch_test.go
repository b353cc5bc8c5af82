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

// A host counts the goroutines that it runs.
type host struct {
	mu      sync.Mutex
	running int
	started int
	over    bool
	refuses bool
}

func (h *host) Start(work func(context.Context)) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.refuses {
		return errRefused
	}
	h.running++
	h.started++
	go func() {
		work(context.Background())
		h.mu.Lock()
		defer h.mu.Unlock()
		h.running--
	}()
	return nil
}

func (h *host) Err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		return errHost
	}
	return nil
}

// goroutines returns how many of them run now. What one that has ended wrote may be read
// afterwards.
func (h *host) goroutines() int {
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.running
}

func (h *host) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
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
	p := &printer{print: func([]*job) (bool, error) { time.Sleep(time.Second); return true, nil }}
	p.jobs = batch.New(&p.host, limits, p.serve, func(_ *job, cause error) error {
		return fmt.Errorf("%w: %w", errUnknown, cause)
	})
	return p
}

func (p *printer) serve(context.Context) {
	for range p.jobs.Rounds() {
		jobs := p.jobs.Collect(func(j *job, room *batch.Room) bool { return room.Take(1, j.bytes) })
		if len(jobs) == 0 {
			continue // its ctx has ended meanwhile
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
}

// sizes are those of the batches, once all is done.
func (p *printer) sizes() (all []int) {
	p.host.goroutines()
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
		synctest.Wait()
	}
	return answers
}

func numbered(n, bytes int) (jobs []*job) {
	for i := range n {
		jobs = append(jobs, &job{number: i, bytes: bytes})
	}
	return jobs
}

var wide = batch.Limits{Count: 1000, Bytes: 1000}

func TestRequestsAreCollectedWhileABatchIsUnderWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPrinter(wide)
		jobs := numbered(10, 1)
		for _, answer := range p.start(t.Context(), jobs...) {
			require.NoError(t, <-answer)
		}
		require.Equal(t, []int{1, 9}, p.sizes())
		require.Equal(t, jobs, p.executed)
	})
}

func TestGoroutineLivesOnlyWhileThereIsWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPrinter(wide)
		for i := range 3 {
			answers := p.start(t.Context(), numbered(5, 1)...)
			require.Equal(t, 1, p.host.goroutines())
			for _, answer := range answers {
				require.NoError(t, <-answer)
			}
			require.Zero(t, p.host.goroutines())
			require.Equal(t, i+1, p.host.started)
		}
	})
}

func TestBatchesAreBounded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		limits batch.Limits
		bytes  []int
		want   []int
	}{
		"by count":                       {batch.Limits{Count: 3, Bytes: 100}, []int{1, 1, 1, 1, 1, 1, 1, 1}, []int{1, 3, 3, 1}},
		"by bytes":                       {batch.Limits{Count: 100, Bytes: 10}, []int{1, 5, 5, 1, 9, 1, 10}, []int{1, 2, 2, 1, 1}},
		"a large one is alone":           {batch.Limits{Count: 100, Bytes: 10}, []int{1, 50, 1, 2, 50, 3}, []int{1, 1, 2, 1, 1}},
		"a smaller one does not go past": {batch.Limits{Count: 100, Bytes: 10}, []int{1, 6, 7, 1}, []int{1, 1, 2}},
		"one is never too large":         {batch.Limits{Count: 100, Bytes: 10}, []int{1000, 1000}, []int{1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newPrinter(c.limits)
				var jobs []*job
				for i, bytes := range c.bytes {
					jobs = append(jobs, &job{number: i, bytes: bytes})
				}
				for _, answer := range p.start(t.Context(), jobs...) {
					require.NoError(t, <-answer)
				}
				require.Equal(t, c.want, p.sizes())
				require.Equal(t, jobs, p.executed)
			})
		})
	}
}

func TestRequestThatWasNotSentIsWithdrawn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPrinter(wide)
		first := p.start(t.Context(), &job{})
		ctx, cancel := context.WithCancelCause(t.Context())
		second := p.start(ctx, &job{number: 1})
		cancel(errors.New("enough"))
		synctest.Wait() // no time passes

		err := <-second[0]
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorContains(t, err, "enough")
		require.NotErrorIs(t, err, errUnknown)
		require.NoError(t, <-first[0])
		require.Equal(t, []int{1}, p.sizes())
	})
}

// An expired is a context that says so when it is asked, and closes no channel yet.
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

// The ctx ends after the round has begun, and its caller has not been woken yet.
func TestExpiredRequestIsNotCollected(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var over bool
		var collected [][]*job
		p := &printer{}
		p.jobs = batch.New[*job](&p.host, wide, func(context.Context) {
			for range p.jobs.Rounds() {
				over = true
				jobs := p.jobs.Collect(func(*job, *batch.Room) bool { return true })
				collected = append(collected, jobs)
				p.jobs.Answer(nil, jobs...)
			}
		}, nil)
		err := <-p.start(expired{t.Context(), &over}, &job{})[0]
		require.Equal(t, context.DeadlineExceeded, err)
		require.Zero(t, p.host.goroutines())
		require.Equal(t, [][]*job{nil}, collected)
	})
}

// The function that serves neither sees such a request, nor is asked for another round by it.
func TestExpiredRequestIsNotPending(t *testing.T) {
	t.Parallel()
	for name, look := range map[string]bool{"in a round": true, "in the next round": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var over bool
				var seen []*job
				rounds := 0
				p := &printer{}
				p.jobs = batch.New[*job](&p.host, wide, func(context.Context) {
					for pending := range p.jobs.Rounds() {
						rounds++
						over = true
						if look {
							seen = p.jobs.Pending()
						}
						if rounds > 1 {
							p.jobs.Answer(nil, pending...)
						}
					}
				}, nil)
				require.Equal(t, context.DeadlineExceeded, <-p.start(expired{t.Context(), &over}, &job{})[0])
				require.Zero(t, p.host.goroutines())
				require.Equal(t, 1, rounds)
				require.Empty(t, seen)
			})
		})
	}
}

// The last request ends between two looks at what is pending. Who waits for Woken then does not wait
// for a request that is gone.
func TestRequestThatIsFoundExpiredWakes(t *testing.T) {
	t.Parallel()
	for name, look := range map[string]func(*printer){
		"pending":   func(p *printer) { p.jobs.Pending() },
		"collected": func(p *printer) { p.jobs.Collect(func(*job, *batch.Room) bool { return true }) },
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			p := newPrinter(wide)
			p.jobs = batch.New(&p.host, wide, func(context.Context) {
				for range p.jobs.Rounds() {
					<-p.jobs.Woken() // that it has come
					cancel()
					look(p)
					<-p.jobs.Woken()
				}
			}, func(_ *job, cause error) error { return cause })
			p.jobs.Wake()
			require.ErrorIs(t, p.jobs.Do(ctx, &job{}), context.Canceled)
			require.Zero(t, p.host.goroutines(), name)
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
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newPrinter(wide)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second-c.ends)
				defer cancel()
				j := &job{}
				answer := <-p.start(ctx, j)[0]
				require.ErrorIs(t, answer, c.want)
				if c.want != nil {
					require.ErrorIs(t, answer, context.DeadlineExceeded)
				}
				time.Sleep(time.Second)
				require.Zero(t, p.host.goroutines())
				require.Equal(t, c.want != nil, slices.Contains(p.left, j))
			})
		})
	}
}

// A batch that was not executed goes back, and a caller that has waited for it is free to leave.
func TestReturnedRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPrinter(wide)
		p.print = func([]*job) (bool, error) { time.Sleep(time.Second); return len(p.batches) > 2, nil }
		ctx, cancel := context.WithTimeout(t.Context(), time.Second-batch.Grace/2)
		defer cancel()
		jobs := numbered(3, 1)
		first := p.start(t.Context(), jobs[0])
		leaving := p.start(ctx, jobs[1])
		last := p.start(t.Context(), jobs[2])
		require.ErrorIs(t, <-leaving[0], context.DeadlineExceeded)
		require.NoError(t, <-first[0])
		require.NoError(t, <-last[0])
		require.Zero(t, p.host.goroutines())
		require.Equal(t, []*job{jobs[0], jobs[2]}, p.executed)
	})
}

// A batch that was not executed goes back, and the next round does not begin within the grace.
func TestReturnedRequestHasNoUnknownOutcome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &printer{}
		p.jobs = batch.New(&p.host, wide, func(context.Context) {
			for range p.jobs.Rounds() {
				jobs := p.jobs.Collect(func(*job, *batch.Room) bool { return true })
				time.Sleep(time.Second)
				p.jobs.Return(jobs)
				<-p.jobs.Woken() // when the request has gone
			}
		}, func(*job, error) error { return errUnknown })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second-batch.Grace/2)
		defer cancel()
		require.Equal(t, context.DeadlineExceeded, <-p.start(ctx, &job{})[0])
		time.Sleep(2 * batch.Grace)
		require.Zero(t, p.host.goroutines())
	})
}

func TestErrorGoesToTheWholeBatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPrinter(wide)
		failed := errors.New("no paper")
		p.print = func(jobs []*job) (bool, error) {
			time.Sleep(time.Second)
			if len(p.batches) == 2 {
				return false, failed
			}
			return true, nil
		}
		answers := p.start(t.Context(), numbered(3, 1)...)
		require.NoError(t, <-answers[0])
		require.ErrorIs(t, <-answers[1], failed)
		require.ErrorIs(t, <-answers[2], failed)
		require.NoError(t, <-p.start(t.Context(), &job{})[0])
	})
}

func TestLostHostHandsRequestsBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPrinter(wide)
		answers := p.start(t.Context(), numbered(3, 1)...)
		p.host.end()
		require.NoError(t, <-answers[0]) // which was under way
		require.ErrorIs(t, <-answers[1], errHost)
		require.ErrorIs(t, <-answers[2], errHost)
		require.ErrorIs(t, <-p.start(t.Context(), &job{})[0], errHost)
		require.Zero(t, p.host.goroutines())

		p.host.refuses = true
		require.ErrorIs(t, <-p.start(t.Context(), &job{})[0], errRefused)
		require.ErrorIs(t, <-p.start(t.Context(), &job{})[0], errRefused)
	})
}

// A function that serves and gives up strands no caller.
func TestLoopThatIsLeftEarly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &printer{}
		rounds := 0
		p.jobs = batch.New[*job](&p.host, wide, func(context.Context) {
			for pending := range p.jobs.Rounds() {
				time.Sleep(time.Second)
				if rounds++; rounds == 1 {
					break
				}
				p.jobs.Answer(nil, pending...)
			}
		}, nil)
		for _, answer := range p.start(t.Context(), numbered(2, 1)...) {
			require.ErrorContains(t, <-answer, "served")
		}
		require.NoError(t, <-p.start(t.Context(), &job{})[0])
	})
}

// A function that cannot answer yet is woken by a request that comes, by one that goes, and by
// Wake.
func TestWoken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &printer{}
		woken := 0
		p.jobs = batch.New[*job](&p.host, wide, func(context.Context) {
			for range p.jobs.Rounds() {
				if pending := p.jobs.Pending(); len(pending) == 2 {
					p.jobs.Answer(nil, pending...)
					continue
				}
				<-p.jobs.Woken()
				woken++
			}
		}, nil)
		ctx, cancel := context.WithCancel(t.Context())
		going := p.start(ctx, &job{})
		p.jobs.Wake()
		synctest.Wait()
		require.Equal(t, 1, woken)
		cancel()
		require.ErrorIs(t, <-going[0], context.Canceled)
		require.Zero(t, p.host.goroutines())

		answers := p.start(t.Context(), numbered(2, 1)...)
		require.NoError(t, <-answers[0])
		require.NoError(t, <-answers[1])
		require.Zero(t, p.host.goroutines())
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
	host := time.AfterFunc(lasts, p.host.end)
	defer host.Stop()

	var wait sync.WaitGroup
	answers := make([][]error, len(plans))
	for i, plan := range plans {
		wait.Go(func() {
			time.Sleep(plan.starts)
			ctx := t.Context()
			if plan.limit > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, plan.limit)
				defer cancel()
			}
			answers[i] = append(answers[i], p.jobs.Do(ctx, &job{number: i, bytes: plan.bytes}))
		})
	}
	wait.Wait()
	time.Sleep(time.Second) // the last batch may be of a caller that has left
	if p.host.goroutines() != 0 {
		return errors.New("a goroutine is left")
	}

	executed := make([]int, len(plans))
	for i, j := range p.executed {
		executed[j.number]++
		if i > 0 && p.executed[i-1].number >= j.number {
			return fmt.Errorf("%d after %d", j.number, p.executed[i-1].number)
		}
	}
	for i, all := range answers {
		var most, least int
		switch err := all[0]; {
		case err == nil:
			most, least = 1, 1
		case errors.Is(err, errUnknown):
			most = 1
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, errHost), errors.Is(err, errBatch):
		default:
			return err
		}
		if n := executed[i]; n < least || n > most || len(all) != 1 {
			return fmt.Errorf("request %d: %v, and executed %d times", i, all, n)
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

// A call of serve that has something to do after its last round is over before the next one begins.
func TestOneCallAtATime(t *testing.T) {
	t.Parallel()
	var b *batch.Batcher[*job]
	var serving, most atomic.Int32
	b = batch.New(&host{}, batch.Limits{Count: 1, Bytes: 1}, func(context.Context) {
		most.Store(max(most.Load(), serving.Add(1)))
		defer serving.Add(-1)
		for pending := range b.Rounds() {
			b.Answer(nil, pending...)
		}
		time.Sleep(time.Millisecond)
	}, func(*job, error) error { return errUnknown })
	for range 10 {
		require.NoError(t, b.Do(t.Context(), &job{}))
	}
	require.EqualValues(t, 1, most.Load())
}

// BenchmarkCallsThatEndTogether shows what each of many calls costs that end at one moment. It is the
// same for a thousand and for forty thousand.
func BenchmarkCallsThatEndTogether(b *testing.B) {
	for _, n := range []int{1000, 40_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.StopTimer()
			for range b.N {
				p := newPrinter(wide)
				release := make(chan struct{})
				p.print = func([]*job) (bool, error) { <-release; return true, nil }
				first := make(chan error)
				go func() { first <- p.jobs.Do(b.Context(), &job{}) }()
				ctx, stop := context.WithCancel(b.Context())
				var calls sync.WaitGroup
				for _, j := range numbered(n, 1) {
					calls.Go(func() { p.jobs.Do(ctx, j) })
				}
				b.StartTimer()
				stop()
				calls.Wait()
				b.StopTimer()
				close(release)
				<-first
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/call")
		})
	}
}

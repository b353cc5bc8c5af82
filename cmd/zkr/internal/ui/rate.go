package ui

import (
	"math"
	"time"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/survey"
)

// window is the time that the rates of a queue are averaged over.
const window = 10 * time.Second

// A flow has the lengths of a queue at several looks.
type flow struct{ samples []sample }

type sample struct {
	at      time.Time
	created int32 // a counter that wraps
	length  int
}

// add adds the result of a look.
func (f *flow) add(at time.Time, e *survey.Entries) {
	s := sample{at, e.Created, e.Length}

	// One sample a second is enough.
	if n := len(f.samples); n > 1 && at.Sub(f.samples[n-2].at) < time.Second {
		f.samples[n-1] = s
	} else {
		f.samples = append(f.samples, s)
	}

	for len(f.samples) > 2 && at.Sub(f.samples[1].at) >= window {
		f.samples = f.samples[1:]
	}
}

// rates returns how many elements came and went per second.
func (f *flow) rates() (in, out float64) {
	// A rate needs two samples.
	if len(f.samples) < 2 {
		return 0, 0
	}

	first, last := f.samples[0], f.samples[len(f.samples)-1]
	seconds := max(last.at.Sub(first.at).Seconds(), 1)
	came := last.created - first.created // the difference is right even across the wrap

	// An element that came and is not in the length has gone.
	went := int(came) - (last.length - first.length)
	return perSecond(int(came), seconds), perSecond(went, seconds)
}

// perSecond rounds a rate to the precision of the page, so that a row doesn't change for less.
func perSecond(n int, seconds float64) float64 {
	rate := max(float64(n), 0) / seconds
	if rate >= 10 {
		return math.Round(rate)
	}
	return math.Round(rate*10) / 10
}

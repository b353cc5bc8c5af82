package ui

import (
	"math"
	"time"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/survey"
)

// window is the time over which the rates of a queue are averages.
const window = 10 * time.Second

// A flow is how many elements a queue has got and given away, as it was seen lately.
type flow struct{ samples []sample }

type sample struct {
	at      time.Time
	created int32 // which wraps
	length  int
}

// add notes what a look has found.
func (f *flow) add(at time.Time, e *survey.Entries) {
	s := sample{at, e.Created, e.Length}

	// Between two changes of the window's end, one sample a second suffices.
	if n := len(f.samples); n > 1 && at.Sub(f.samples[n-2].at) < time.Second {
		f.samples[n-1] = s
	} else {
		f.samples = append(f.samples, s)
	}
	for len(f.samples) > 2 && at.Sub(f.samples[1].at) >= window {
		f.samples = f.samples[1:]
	}
}

// rates returns how many elements a second came and went.
func (f *flow) rates() (in, out float64) {
	if len(f.samples) < 2 {
		return 0, 0
	}

	first, last := f.samples[0], f.samples[len(f.samples)-1]
	seconds := max(last.at.Sub(first.at).Seconds(), 1)
	came := last.created - first.created // right across the wrap
	went := int(came) - (last.length - first.length)
	return perSecond(int(came), seconds), perSecond(went, seconds)
}

// perSecond rounds a rate as coarsely as it is shown, so that a row does not change for less.
func perSecond(n int, seconds float64) float64 {
	rate := max(float64(n), 0) / seconds
	if rate >= 10 {
		return math.Round(rate)
	}
	return math.Round(rate*10) / 10
}

package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
)

// The limits of what counts as flat. A quantity grows if both of these hold for the second half of
// its series; the first half is for warming up.
//
//   - The line through the means of ten batches rises by more than growthLimit of the mean, or by
//     more than the quantity's floor, if that is more.
//   - Its slope is more than noiseLimit times its standard error.
//
// The means of batches are used, because neighbouring samples are not independent.
const (
	growthLimit = 0.02
	noiseLimit  = 4
	batches     = 10
)

var errTooFew = fmt.Errorf("fewer than %d samples", 2*batches)

// A verdict says how much the second half of a series has grown.
type verdict struct {
	mean   float64
	growth float64 // of the line, from the beginning of the half to its end
	noise  float64 // the standard error of growth
	limit  float64
}

func (v verdict) flat() bool { return v.growth <= max(v.limit, noiseLimit*v.noise) }

// judge judges a series of samples that were taken at equal distances.
func judge(series []float64, floor float64) (verdict, error) {
	if len(series) < 2*batches {
		return verdict{}, errTooFew
	}
	half := series[len(series)/2:]
	var means [batches]float64
	for i := range means {
		means[i] = mean(half[i*len(half)/batches : (i+1)*len(half)/batches])
	}

	// The line of least squares through means, at the places 0, 1, 2 and so on.
	const middle = float64(batches-1) / 2
	v := verdict{mean: mean(means[:])}
	var spread, covariance, errors float64
	for i, y := range means {
		x := float64(i) - middle
		spread += x * x
		covariance += x * (y - v.mean)
	}
	slope := covariance / spread
	for i, y := range means {
		e := y - v.mean - slope*(float64(i)-middle)
		errors += e * e
	}
	v.growth = slope * batches
	v.noise = math.Sqrt(errors/(batches-2)/spread) * batches
	v.limit = max(growthLimit*v.mean, floor)
	return v, nil
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// judgeAll prints the verdict on each quantity in each piece, and returns an error if one grows. A
// piece with too few samples is not judged, and that is said.
func judgeAll(out io.Writer, samples []sample) error {
	var grown []error
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "piece\tminutes\tquantity\tmean\tgrowth\tnoise\tlimit\t\t")
	for piece := range piecesOf(samples) {
		first, last := piece[0], piece[len(piece)-1]
		for i, q := range quantities {
			series := make([]float64, len(piece))
			for j, s := range piece {
				series[j] = s.values[i]
			}
			v, err := judge(series, q.floor)
			if errors.Is(err, errTooFew) {
				fmt.Fprintf(table, "%d\t\t%s\t\t\t\t\tnot judged: %v\t\n", first.piece, q.name, err)
				continue
			}
			word := "flat"
			if !v.flat() {
				word = "grows"
				grown = append(grown, fmt.Errorf("piece %d: %s grows by %.2f", first.piece, q.name, v.growth))
			}
			fmt.Fprintf(table, "%d\t%.0f\t%s\t%.2f\t%+.2f\t%.2f\t%.2f\t%s\t\n", first.piece,
				(last.time - first.time).Minutes(), q.name, v.mean, v.growth, v.noise, v.limit, word)
		}
	}
	return errors.Join(append(grown, table.Flush())...)
}

// piecesOf returns the samples of each piece.
func piecesOf(samples []sample) func(yield func([]sample) bool) {
	return func(yield func([]sample) bool) {
		for len(samples) > 0 {
			n := slices.IndexFunc(samples, func(s sample) bool { return s.piece != samples[0].piece })
			if n < 0 {
				n = len(samples)
			}
			if !yield(samples[:n]) {
				return
			}
			samples = samples[n:]
		}
	}
}

package main

import (
	"bytes"
	"context"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
)

func TestMain(m *testing.M) { suite.Main(m) }

// runFor runs a piece until it has so many samples.
func runFor(t *testing.T, dir string, samples int, atSample func()) (out string, err error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var b bytes.Buffer
	err = run(ctx, &b, options{
		whole: time.Hour, every: 50 * time.Millisecond, server: "embedded", out: dir,
		atSample: func() {
			if samples--; samples < 0 {
				cancel()
			}
			atSample()
		},
	})
	return b.String(), err
}

func TestRunGoesOnWithTheSamplesOfEarlierPieces(t *testing.T) {
	dir := t.TempDir()
	before := time.Duration(0)
	for piece := 1; piece <= 2; piece++ {
		out, err := runFor(t, dir, 8, func() {})
		t.Logf("%s\n%v", out, err) // how much work is done depends on the machine

		record, err := openRecord(filepath.Join(dir, "samples.csv"))
		require.NoError(t, err)
		require.NoError(t, record.Close())
		require.Equal(t, piece+1, record.piece)
		require.GreaterOrEqual(t, len(record.samples), 8*piece)
		last := record.samples[len(record.samples)-1]
		require.Greater(t, last.time, before)
		before = last.time
		for i, v := range last.values {
			require.Positive(t, v, quantities[i].name)
			require.FileExists(t, filepath.Join(dir, quantities[i].name+".svg"))
		}
	}
}

func TestRunFailsIfGoroutinesPileUp(t *testing.T) {
	stop := make(chan struct{})
	defer close(stop)
	out, err := runFor(t, t.TempDir(), 40, func() {
		for range 200 { // far more than the work has
			go func() { <-stop }()
		}
	})
	require.ErrorContains(t, err, "goroutines grows", out)
}

func TestUnknownServerIsRefused(t *testing.T) {
	err := run(t.Context(), &bytes.Buffer{}, options{whole: time.Second, server: "other", out: t.TempDir()})
	require.ErrorContains(t, err, "unknown server")
}

// series returns 400 samples: f, with noise around it.
func series(noise float64, f func(i int) float64) []float64 {
	random := rand.New(rand.NewPCG(1, 2))
	s := make([]float64, 400)
	for i := range s {
		s[i] = f(i) + noise*random.NormFloat64()
	}
	return s
}

func TestVerdicts(t *testing.T) {
	for _, test := range []struct {
		name   string
		series []float64
		floor  float64
		flat   bool
	}{
		{"constant", series(0, func(int) float64 { return 100 }), 0, true},
		{"zero", series(0, func(int) float64 { return 0 }), 0, true},
		{"noise", series(20, func(int) float64 { return 100 }), 0, true},
		{"grows by a tenth in the half", series(0, func(i int) float64 { return 100 + float64(i)/20 }), 0, false},
		{"grows by a tenth, with noise", series(5, func(i int) float64 { return 100 + float64(i)/20 }), 0, false},
		{"grows by a hundredth", series(0, func(i int) float64 { return 100 + float64(i)/200 }), 0, true},
		{"grows by less than the floor", series(0, func(i int) float64 { return 10 + float64(i)/100 }), 3, true},
		{"grows by more than the floor", series(0, func(i int) float64 { return 10 + float64(i)/50 }), 3, false},
		{"grows less than it swings", series(100, func(i int) float64 { return 100 + float64(i)/40 }), 0, true},
		{"falls", series(1, func(i int) float64 { return 100 - float64(i)/10 }), 0, true},
		{"warms up and stays", series(1, func(i int) float64 { return min(100, float64(i)) }), 0, true},
		{"stays and then grows", series(1, func(i int) float64 { return max(200, float64(i)) }), 0, false},
		{"a saw", series(0, func(i int) float64 { return 100 + float64(i%20) }), 0, true},
		{"a saw that rises", series(0, func(i int) float64 { return 100 + float64(i%20) + float64(i)/10 }), 0, false},
	} {
		v, err := judge(test.series, test.floor)
		require.NoError(t, err, test.name)
		require.Equal(t, test.flat, v.flat(), "%s: %+v", test.name, v)
	}
}

func TestGrowthIsThatOfTheSecondHalf(t *testing.T) {
	v, err := judge(series(0, func(i int) float64 { return float64(i) }), 0)
	require.NoError(t, err)
	require.InDelta(t, 200, v.growth, 1e-6)
	require.InDelta(t, 299.5, v.mean, 1e-6)
	require.InDelta(t, 0, v.noise, 1e-6)
}

func TestFewSamplesAreNotJudged(t *testing.T) {
	_, err := judge(make([]float64, 2*batches-1), 0)
	require.ErrorIs(t, err, errTooFew)
	_, err = judge(make([]float64, 2*batches), 0)
	require.NoError(t, err)
}

func TestPiecesAreJudgedEachByItself(t *testing.T) {
	var samples []sample
	for piece := 1; piece <= 2; piece++ {
		for i := range 100 {
			values := make([]float64, len(quantities))
			for j := range values {
				values[j] = 100 * float64(piece) // more than before, and flat
			}
			if piece == 2 {
				values[0] += float64(i)
			}
			samples = append(samples, sample{piece: piece, time: time.Duration(len(samples)) * time.Second, values: values})
		}
	}
	var out bytes.Buffer
	require.NoError(t, judgeAll(&out, samples[:100]))
	require.EqualError(t, judgeAll(&out, samples), "piece 2: heap grows by 50.00")
}

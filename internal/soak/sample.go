package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"
)

// A quantity must not grow. Its name is that of its column.
type quantity struct {
	name, unit string
	floor      float64 // a growth that is too small to count
	counter    string  // the server's name for it; empty if this process has it
}

// quantities are the columns behind the piece, the time and the turns.
var quantities = []quantity{
	{name: "heap", unit: "MiB", floor: 0.1},
	{name: "stacks", unit: "MiB", floor: 0.1},
	{name: "goroutines", floor: 2},
	{name: "descriptors", floor: 2},
	{name: "watches", floor: 2, counter: "watch_count"},
	{name: "connections", floor: 2, counter: "num_alive_connections"},
	{name: "znodes", floor: 2, counter: "znode_count"},
	{name: "sessions", floor: 2, counter: "global_sessions"},
}

// A sample is what was there at one moment.
type sample struct {
	piece  int
	time   time.Duration // of work, in all pieces
	turns  int64         // in this piece
	values []float64     // of the quantities
}

// A record is a file of samples, one a line.
type record struct {
	file    *os.File
	samples []sample
	piece   int           // the one under way
	before  time.Duration // the time of the pieces before it
}

// openRecord reads the samples of earlier pieces, if there are any, to add those of another one.
func openRecord(path string) (*record, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	r := &record{file: file, piece: 1}
	if err := r.read(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), file.Close())
	}
	r.before = r.elapsed()
	if n := len(r.samples); n > 0 {
		r.piece = r.samples[n-1].piece + 1
	}
	return r, nil
}

func (r *record) read() error {
	lines, err := csv.NewReader(r.file).ReadAll()
	if err != nil {
		return err
	}
	if len(lines) == 0 {
		header := []string{"piece", "seconds", "turns"}
		for _, q := range quantities {
			header = append(header, q.name)
		}
		return r.write(header)
	}
	for _, line := range lines[1:] {
		values := make([]float64, len(line))
		for i, field := range line {
			if values[i], err = strconv.ParseFloat(field, 64); err != nil {
				return err
			}
		}
		r.samples = append(r.samples, sample{
			piece: int(values[0]), time: time.Duration(values[1] * float64(time.Second)), turns: int64(values[2]), values: values[3:],
		})
	}
	return nil
}

func (r *record) write(line []string) error {
	w := csv.NewWriter(r.file)
	if err := w.Write(line); err != nil {
		return err
	}
	w.Flush()
	return w.Error()
}

// elapsed returns how long all pieces have taken.
func (r *record) elapsed() time.Duration {
	if len(r.samples) == 0 {
		return 0
	}
	return r.samples[len(r.samples)-1].time
}

// add takes a sample at a time of the piece under way.
func (r *record) add(at time.Duration, s *soak, server *server) error {
	counters, err := server.counters()
	if err != nil {
		return err
	}
	descriptors, err := os.ReadDir("/dev/fd")
	if err != nil {
		return err
	}
	goroutines := runtime.NumGoroutine()
	runtime.GC()
	runtime.GC() // the first one may have been under way already
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	own := map[string]float64{
		"heap":        float64(m.HeapAlloc) / (1 << 20),
		"stacks":      float64(m.StackInuse) / (1 << 20),
		"goroutines":  float64(goroutines),
		"descriptors": float64(len(descriptors)),
	}

	next := sample{piece: r.piece, time: r.before + at, turns: s.turns()}
	line := []string{strconv.Itoa(r.piece), fmt.Sprintf("%.1f", next.time.Seconds()), strconv.FormatInt(next.turns, 10)}
	for _, q := range quantities {
		value, ok := own[q.name]
		if q.counter != "" {
			value, ok = counters[q.counter]
		}
		if !ok {
			return fmt.Errorf("the server does not report %s", q.counter)
		}
		next.values = append(next.values, value)
		line = append(line, strconv.FormatFloat(value, 'f', -1, 64))
	}
	r.samples = append(r.samples, next)
	return r.write(line)
}

func (r *record) Close() error { return r.file.Close() }

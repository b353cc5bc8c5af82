package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// A Verdict is the result of a round's checks.
type Verdict struct {
	Failures  []string
	Undecided []string // recipes whose history porcupine couldn't decide in time
}

func (v Verdict) failed() bool { return len(v.Failures) > 0 }

// judge checks the history of a round.
func judge(r *Round) (v Verdict) {
	for _, what := range r.Broken {
		v.Failures = append(v.Failures, fmt.Sprintf("round %d: %s", r.Number, what))
	}

	names := make(map[string]bool)
	for _, o := range r.Ops {
		names[o.Recipe] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		err := recipes[name].check(r, name)
		switch {
		case errors.Is(err, errUndecided):
			v.Undecided = append(v.Undecided, fmt.Sprintf("round %d: %s", r.Number, name))
		case err != nil:
			v.Failures = append(v.Failures, fmt.Sprintf("round %d: %s: %v", r.Number, name, err))
		}
	}

	return v
}

// judgeFile checks the rounds of a file again, and prints what it finds.
func judgeFile(name string, out io.Writer) (failed bool, err error) {
	f, err := os.Open(name)
	if err != nil {
		return false, err
	}
	defer f.Close()

	rounds, ops := 0, 0
	decoder := json.NewDecoder(bufio.NewReader(f))
	for {
		var r Round
		err := decoder.Decode(&r)
		if errors.Is(err, io.EOF) {
			fmt.Fprintf(out, "%d rounds with %d operations\n", rounds, ops)
			return failed, nil
		}
		if err != nil {
			return failed, fmt.Errorf("%s: %w", name, err)
		}

		rounds++
		ops += len(r.Ops)
		v := judge(&r)
		failed = failed || v.failed()
		for _, text := range v.Failures {
			fmt.Fprintln(out, text)
		}
		for _, text := range v.Undecided {
			fmt.Fprintln(out, text+": not decided in time")
		}
	}
}

func (v Verdict) text() string { return strings.Join(v.Failures, "\n") }

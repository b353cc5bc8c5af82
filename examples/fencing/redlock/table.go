package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"sync"
	"text/tabwriter"
	"time"
)

type options struct {
	rounds int
	seed   uint64
	lease  time.Duration
}

// A row is about one kind of lock with one fault.
type row struct {
	fault fault
	kind  kind
	counts
}

// counts count the results of rounds.
type counts struct {
	rounds int // 0 if the fault isn't possible
	both   int // two clients believed that they held the lock
	late   int // the first client wrote after its successor

	// late writes that a store accepted, by what it compared
	nothing, values, tokens, checks int
}

// run runs all rounds at the same time, each with its own servers, and returns the rows of the
// table. It blocks until all rounds have ended, or ctx ends.
func run(ctx context.Context, o options) ([]row, error) {
	if o.rounds < 1 || o.lease < 100*time.Millisecond {
		return nil, errors.New("it takes one round, and a lease of 100ms")
	}

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	var mu sync.Mutex // protects the rows
	rows := make([]row, 0, len(faults)*len(kinds))
	for number, f := range faults {
		for _, k := range kinds {
			rows = append(rows, row{fault: f, kind: k})
			if !f.meets(k) {
				continue
			}

			row := &rows[len(rows)-1]
			for i := range o.rounds {
				r := newRound(k, f, o.lease, rand.New(rand.NewPCG(o.seed, uint64(number)<<32|uint64(i))))
				wg.Go(func() {
					result, err := r.run(ctx)
					if err != nil {
						cancel(fmt.Errorf("%s, fault %q: %w", k.name, f.name, err))
					}

					mu.Lock()
					defer mu.Unlock()
					row.add(result)
				})
			}
		}
	}

	wg.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return rows, nil
}

func (c *counts) add(r result) {
	c.rounds++
	if r.both {
		c.both++
	}
	if !r.late {
		return
	}

	c.late++
	for count, taken := range map[*int]bool{
		&c.nothing: r.nothing, &c.values: r.values, &c.tokens: r.tokens, &c.checks: r.check,
	} {
		if taken {
			*count++
		}
	}
}

func printTable(out io.Writer, o options, rows []row) {
	fmt.Fprintf(out, "Two clients, one lock, one store. Leases of %v, and of %v where clocks leap. %d rounds of each fault. Seed %d.\n\n",
		o.lease, leapLeases*o.lease, o.rounds, o.seed)

	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\t\tboth\tlate\tof these taken by a store that compares")
	fmt.Fprintln(w, "the first client is\tlock\thold\twrites\tnothing\tvalues\ttokens\tCheck")
	for i, r := range rows {
		name := r.fault.name
		if i > 0 && rows[i-1].fault.name == name {
			name = ""
		}
		count := func(n int, counted bool) string {
			if r.rounds == 0 || !counted {
				return "-"
			}
			return strconv.Itoa(n)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", name, r.kind.name,
			count(r.both, true), count(r.late, true), count(r.nothing, true), count(r.values, true),
			count(r.tokens, r.kind.tokens), count(r.checks, r.kind.tokens))
	}

	w.Flush()
}

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// want has the counts of each row, for one round. What is drawn makes no difference.
var want = map[string]map[string]counts{
	"none": {
		"Redlock": {}, "Redlock, asks": {}, "zkrecipes": {},
	},
	"paused before it looks": {
		"Redlock": {}, "Redlock, asks": {}, "zkrecipes": {},
	},
	"paused before its first request": {
		"Redlock":       {late: 1, nothing: 1, values: 1},
		"Redlock, asks": {late: 1, nothing: 1, values: 1},
		"zkrecipes":     {late: 1, nothing: 1, values: 1},
	},
	"paused between its requests": {
		"Redlock":       {late: 1, nothing: 1},
		"Redlock, asks": {late: 1, nothing: 1},
		"zkrecipes":     {late: 1, nothing: 1},
	},
	"clocks of 2 of 5 servers leap": {
		"Redlock": {}, "Redlock, asks": {},
	},
	"clocks of 3 of 5 servers leap": {
		"Redlock":       {both: 1, late: 1, nothing: 1, values: 1},
		"Redlock, asks": {},
		"zkrecipes":     {},
	},
	"the same, and it is cut off": {
		"Redlock":       {both: 1, late: 1, nothing: 1, values: 1},
		"Redlock, asks": {},
		"zkrecipes":     {both: 1, late: 1, nothing: 1, values: 1},
	},
}

// The bubble gives the rounds a clock of their own, which a busy machine cannot delay. It also
// fails if a goroutine is left.
func TestTableIsTheSameForAllSeeds(t *testing.T) {
	const rounds = 1
	for seed := range uint64(2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := options{rounds: rounds, seed: seed, lease: 3 * time.Second}
				rows, err := run(t.Context(), o)
				if err != nil {
					t.Fatal(err)
				}

				var table strings.Builder
				printTable(&table, o, rows)
				t.Logf("\n%s", &table)
				for _, r := range rows {
					once, meets := want[r.fault.name][r.kind.name]
					if got, want := r.counts, once.times(rounds, meets); got != want {
						t.Errorf("%s, %s: %+v, want %+v", r.fault.name, r.kind.name, got, want)
					}
				}
			})
		})
	}
}

// times returns the counts of n rounds like c, if there are any.
func (c counts) times(n int, any bool) counts {
	if !any {
		return counts{}
	}
	return counts{n, c.both * n, c.late * n, c.nothing * n, c.values * n, c.tokens * n, c.checks * n}
}

func TestInterruptedRunEndsAllRounds(t *testing.T) {
	for _, after := range []time.Duration{0, time.Second, 4 * time.Second} {
		t.Run(after.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), after)
				defer cancel()
				if _, err := run(ctx, options{rounds: 1, lease: 3 * time.Second}); err == nil {
					t.Error("no error")
				}
			})
		})
	}
}

func TestBadOptionsAreRefused(t *testing.T) {
	for _, o := range []options{{rounds: 0, lease: time.Second}, {rounds: 1, lease: time.Millisecond}} {
		if _, err := run(t.Context(), o); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
}

func TestStoreRefusesOlderTokensAndOtherValues(t *testing.T) {
	var s store
	s.claim("a")
	for _, write := range []struct {
		value string
		token int64
		want  taken
	}{
		{"a", 5, taken{nothing: true, values: true, tokens: true}},
		{"b", 6, taken{nothing: true, tokens: true}},
		{"a", 5, taken{nothing: true, values: true}},
		{"b", 0, taken{nothing: true}},
	} {
		if got := s.write(write.value, write.token); got != write.want {
			t.Errorf("%+v: %+v", write, got)
		}
	}
}

func TestStoppedNetworkDeliversLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		defer n.close()
		far, server := net.Pipe()
		client, err := n.dial(func() (net.Conn, error) { return far, nil })
		if err != nil {
			t.Fatal(err)
		}

		n.stop()
		go func() {
			client.Write([]byte("late"))
			client.Close()
		}()
		buf := make([]byte, 4)
		server.SetReadDeadline(time.Now().Add(time.Hour))
		var timeout net.Error
		if _, err := server.Read(buf); !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("the server reads %q, %v from a stopped network", buf, err)
		}

		n.run()
		server.SetReadDeadline(time.Time{})
		if read, err := server.Read(buf); err != nil || string(buf[:read]) != "late" {
			t.Errorf("the server reads %q, %v", buf[:read], err)
		}
		if _, err := server.Read(buf); err == nil {
			t.Error("the hang-up was lost")
		}
	})
}

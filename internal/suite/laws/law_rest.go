package laws

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// Rest counts what a call costs, what it costs to hold its result or to wait for it, and what is
// left after a hundred calls.
func Rest(t *testing.T, p *Player) {
	p.law(t, law{name: "rest", title: "What a call costs, and what it costs to hold, to wait and to do nothing.", embedded: true, most: 200, cells: func(sc *scene) {
		sc.add("a call", sc.costs)
		if sc.warm {
			return
		}
		if sc.calm.waits() {
			sc.add("waiting", sc.idles)
		}
		sc.add("many calls", sc.grows)
	}})
}

var together = regexp.MustCompile(`Listen|local queue|Revoked|shared, behind`)

// costs notes the requests of a call, counts those of giving back, and then what holding costs.
func (sc *scene) costs(t *testing.T) {
	requests := sc.calm.requests()
	var kinds []string
	for _, p := range requests {
		kind := "multi"
		if len(p.parts) == 1 {
			kind, _, _ = strings.Cut(p.parts[0], " ")
		}
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	// What a candidate and an observer of one session ask, or two callers of a local queue, depends on
	// who is first.
	if unsteady := sc.calm.waits() || together.MatchString(sc.row.Name); unsteady && racing.MatchString(sc.row.Name) {
		sc.note("a call", "", fmt.Sprintf("up to %d requests", max(1, (len(requests)+19)/20)*20))
	} else {
		sc.note("a call", "", counted(len(requests), "request")+strings.TrimRight(": "+strings.Join(kinds, ", "), ": "))
	}
	if sc.warm {
		return
	}
	sc.play(t, setting{}, func(s *Stage, v Verb) {
		must(v.prepare())
		s.rest()
		idle := s.load()
		o := s.do(v, s.ctx)
		s.rest()
		if o.held != nil && o.held.Back != nil {
			sc.note("holding", "", s.idle(idle))
			before := s.Link.Count(recipestest.OpAny)
			o.back()
			s.settled()
			sc.note("giving back", "", counted(s.Link.Count(recipestest.OpAny)-before, "request"))
			s.rest()
		}
		sc.note("afterwards", "", s.idle(idle))
	})
}

// idles counts what waiting costs: nothing happens that would end the wait.
func (sc *scene) idles(t *testing.T) {
	sc.play(t, setting{}, func(s *Stage, v Verb) {
		must(v.prepare())
		s.rest()
		idle := s.load()
		ctx, cancel := context.WithCancel(s.ctx)
		done := make(chan outcome)
		go func() {
			held, err := v.Call(ctx)
			done <- outcome{held: held, err: err}
		}()
		s.rest()
		sc.note("waiting", "", s.idle(idle))
		cancel()
		(<-done).back()
		if v.Beside != nil {
			v.Beside(s.ctx)
		}
	})
}

// grows makes a hundred calls, and compares what there is with what there was after ten.
func (sc *scene) grows(t *testing.T) {
	sc.play(t, setting{lasts: 24 * time.Hour, packets: 100 * storm}, func(s *Stage, v Verb) {
		var before load
		for n := range 100 {
			must(v.prepare())
			o := s.do(v, s.ctx)
			if errors.Is(o.err, queue.ErrFull) {
				sc.note("a hundred calls", "", "fills its queue")
				return
			}
			if err := o.back(); err != nil || calm(o.err) != nil {
				sc.note("a hundred calls", "", "! "+class(o.err)+", "+class(err))
				return
			}
			if n == 9 {
				s.rest()
				before = s.load()
			}
		}
		s.rest()
		text := "nothing grows"
		if more := s.load().since(before, 10); more != "" {
			text = "grows by " + strings.TrimPrefix(more, ", ")
		}
		sc.note("a hundred calls", "", text)
	})
}

// A load is what a client and its server have to carry.
type load struct{ requests, nodes, watches, goroutines int }

func (s *Stage) load() load {
	s.reap()
	s.settled()
	mntr := s.fourLetters("mntr")
	return load{s.Link.Count(recipestest.OpAny), number(mntr, "zk_znode_count"), number(mntr, "zk_watch_count"), s.count()}
}

// idle is what a minute costs in which nothing is called, beyond what it cost before.
func (s *Stage) idle(before load) (text string) {
	requests := s.Link.Count(recipestest.OpAny)
	time.Sleep(time.Minute)
	now := s.load()
	// Proofs of the session come at uneven times: a table has tens.
	text = "no requests"
	switch n := now.requests - requests; {
	case n > 200:
		text = "hundreds of requests a minute"
	case n > 10:
		text = fmt.Sprintf("%d requests a minute", (n+5)/10*10)
	case n > 0:
		text = "up to 10 requests a minute"
	}
	before.nodes = now.nodes
	return text + now.since(before, 0)
}

// since says what there is more of than before, if that is more than some.
func (l load) since(before load, some int) (text string) {
	for _, d := range []struct {
		n    int
		what string
	}{
		{l.nodes - before.nodes, "node"}, {l.watches - before.watches, "watch"}, {l.goroutines - before.goroutines, "goroutine"},
	} {
		if d.n > some {
			text += ", " + counted(d.n, d.what)
		}
	}
	return text
}

// fourLetters asks the server for its own figures.
func (s *Stage) fourLetters(word string) string {
	c := must(s.Server.Dial("tcp", s.Server.ConnectString(), time.Second))
	defer c.Close()
	must(c.Write([]byte(word)))
	return string(must(io.ReadAll(c)))
}

func number(text, name string) int {
	m := regexp.MustCompile(name + `\s+(\d+)`).FindStringSubmatch(text)
	return must(strconv.Atoi(m[1]))
}

func counted(n int, what string) string {
	switch {
	case n == 0:
		return "no " + what
	case n == 1:
		return "1 " + what
	case what == "watch":
		return strconv.Itoa(n) + " watches"
	}
	return strconv.Itoa(n) + " " + what + "s"
}

package laws

import (
	"fmt"
	"regexp"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// Silence drops all packets in both directions from each packet of a call on. The call must return
// within two seconds of the end of its ctx. Close must return within two seconds, and no goroutine
// of the client may be left.
func Silence(t *testing.T, p *Player) {
	const usual = 2 * time.Second
	title := "What comes of a call during which the network falls silent, and then its ctx ends and its client is closed."
	p.law(t, law{name: "silence", title: title, cells: func(sc *scene) {
		bound := usual
		if strings.HasPrefix(sc.row.Name, "queue.Queue.Consume") {
			bound = timeout // what becomes of an item does not depend on ctx
		}

		for _, p := range sc.calm.packets {
			var ended atomic.Pointer[time.Time]
			sc.broken("silence from", p, setting{}, func(s *Stage, _ []string) {
				s.Link.Stall()
				time.AfterFunc(100*time.Millisecond, func() { now := time.Now(); ended.Store(&now); s.cancel() })
			}, func(s *Stage, v Verb, o outcome, base int, p packet) (at, text string) {

				text = class(o.err)
				if at := ended.Load(); at != nil && o.ended.Sub(*at) > bound {
					text = "! after " + ceil(o.ended.Sub(*at)).String() + ": " + text
				}

				began := time.Now()
				s.Client.Close()
				if took := time.Since(began); took > usual {
					text = "! " + text + "; Close takes " + took.String()
				}

				if s.others.Load() {
					s.Other().Close()
				}

				time.Sleep(time.Second)
				s.settled()
				if left := s.stacks(); len(left) > 0 { // this client's: the other one is closed
					s.Log(left[0])
					text = fmt.Sprint("! ", text, "; goroutines are left: ", len(left))
				}

				s.Link.Heal()
				return p.String(), text
			})
		}
	}})
}

var (
	ofProduct = regexp.MustCompile(`(go-zookeeper/zk|zkrecipes/(internal/conn|internal/session|protocol|lock|rwlock|semaphore|once|election|group|queue|barrier|doublebarrier|value))[.(/]`)
	ofTest    = regexp.MustCompile(`internal/suite/laws\.|recipestest\.\(\*Server\)\.Client`)
)

// count counts the goroutines of stacks.
func (s *Stage) count() (n int) {
	for _, stack := range s.stacks() {
		number, _, _ := strings.Cut(stack, " @ ")
		n += must(strconv.Atoi(number))
	}
	return n
}

// stacks returns the stacks of goroutines of this cell in which a client or a recipe is at work.
// Goroutines with the same stack are one entry, which begins with their number.
func (s *Stage) stacks() (all []string) {
	var profile strings.Builder
	pprof.Lookup("goroutine").WriteTo(&profile, 1)
	_, stacks, _ := strings.Cut(profile.String(), "\n")
	for stack := range strings.SplitSeq(stacks, "\n\n") {
		if strings.Contains(stack, `"recipestest":"`+s.Name()+"#") && ofProduct.MatchString(stack) && !ofTest.MatchString(stack) {
			all = append(all, stack)
		}
	}
	return all
}

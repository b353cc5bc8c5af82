// Generated finds protections that no test would miss. It makes mutants of the code by rule, and
// runs the tests that reach them: each Sync is left out, each expected version becomes any, each
// check of a transaction is dropped, each branch of an error is not taken, each call whose result
// is not used is left out, each comparison is off by one.
//
//	go run ./internal/mutation/generated -for 10m              a random slice
//	go run ./internal/mutation/generated -run lock -for 0      all mutants of lock
//	go run ./internal/mutation/generated -run 'barrier/.*sync' those whose names match
//	go run ./internal/mutation/generated -list                 their names
//
// A mutant that passes all tests that reach it twice survives. It is an error unless accepted.txt
// has it, with the reason why it may. A test that takes far too long has noticed, too: so a busy
// machine makes this tool miss survivors, and never report one that is none. Tests run on the embedded server, without the race detector. The
// working tree is not changed: the go command gets the changed files as an overlay.
package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
)

func main() {
	run := flag.String("run", "", "only mutants whose names match this regular expression")
	list := flag.Bool("list", false, "print names and do nothing")
	limit := flag.Duration("for", 10*time.Minute, "how long to try mutants, or 0 for all of them")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "chooses the slice")
	flag.Parse()

	match, err := regexp.Compile(*run)
	if err == nil && !*list {
		fmt.Printf("seed %d\n", *seed)
	}
	survivors := 0
	if err == nil {
		survivors, err = try(match, *list, *limit, rand.New(rand.NewPCG(*seed, 0)))
	}

	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	case survivors > 0:
		os.Exit(1)
	}
}

// try tries mutants until the time is over, and returns how many have survived.
func try(match *regexp.Regexp, list bool, limit time.Duration, random *rand.Rand) (survivors int, err error) {
	accepted, err := readAccepted()
	if err != nil {
		return 0, err
	}

	// Each subject gets its part of the time that is left, and what others have not used.
	end, tried := time.Now().Add(limit), 0
	wanted := slices.DeleteFunc(slices.Clone(subjects), func(s subject) bool {
		mutants, _, err := s.mutants(match)
		return err == nil && len(mutants) == 0
	})
	for done, i := range random.Perm(len(wanted)) {
		s := wanted[i]
		mutants, files, err := s.mutants(match)
		switch {
		case err != nil:
			return survivors, err
		case list:
			for _, m := range mutants {
				fmt.Println(m.name())
			}
			continue
		}

		suite, err := s.build(files)
		if err != nil {
			return survivors, err
		}
		part := time.Now().Add(time.Until(end) / time.Duration(len(wanted)-done))
		for _, j := range random.Perm(len(mutants)) {
			if limit > 0 && time.Now().After(part) {
				break
			}
			m := mutants[j]
			verdict, survived := suite.try(m)
			if survived { // a test that only chance keeps from noticing may notice now
				verdict, survived = suite.try(m)
			}
			if reason, ok := accepted[m.name()]; ok && survived {
				verdict, survived = "accepted: "+reason, false
			}
			if survived {
				survivors++
			}
			tried++
			fmt.Printf("%s: %s: %s\n", m.place, m.name(), verdict)
		}
		suite.close()
	}

	if !list {
		fmt.Printf("%d mutants were tried, %d have survived\n", tried, survivors)
	}
	return survivors, nil
}

// readAccepted returns the mutants that may survive, with the reasons.
func readAccepted() (map[string]string, error) {
	text, err := os.ReadFile("internal/mutation/generated/accepted.txt")
	if err != nil {
		return nil, err
	}
	accepted := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, reason, found := strings.Cut(line, "  # ")
		if !found {
			return nil, fmt.Errorf("accepted.txt gives no reason for %q", name)
		}
		accepted[name] = reason
	}
	return accepted, nil
}

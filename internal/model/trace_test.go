package model

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "look for the traces again, and write them")

// traces are the runs of line.pml that the code replays. A run is shown by its steps up to the one
// that ends the match of a pattern, and then to its end. A step reads as line.pml prints it, with c
// for the contender of the first step of the pattern.
var traces = []struct{ name, flags, shows, pattern string }{
	{"marker", "-DENDS=0 -DCUTS=0 -DCANCELS=0", "the third in line is granted the lock by a release marker",
		`c Marker; c Event free; c Hold`},
	{"marker-after-cut", "-DENDS=0 -DCANCELS=0", "it is granted by a marker after its connection was cut",
		`c Cut; c Resume; c Marker; c Event free; c Hold`},
	{"cut-while-waiting", "-DENDS=0 -DCANCELS=0", "the end of the blocker is made up for after a reconnect",
		`c Watch waiting; c Cut; Delete; c Resume waiting; c Event listing; c Hold`},
	{"lost-answer", "-DENDS=0 -DCANCELS=0", "the answer to the create is lost, and the node is found",
		`c Create; c Cut created; c Resume settling; c Settle listing; c Hold`},
	{"lost-request", "-DENDS=0 -DCANCELS=0", "the request to create is lost, and the node is created again",
		`c Cut creating; c Resume settling; c Settle creating; c Create; c Hold`},
	{"late-execution", "-DENDS=0 -DCANCELS=0", "the node is created after the connection was cut",
		`c Cut creating; c Create; c Resume settling; c Settle listing; c Hold`},
	{"refused", "-DENDS=0 -DCANCELS=0", "a follower that lags turns a session away",
		`c Cut; c Refused; c Resume; c Hold`},
	{"lag", "-DENDS=0 -DCUTS=0 -DCANCELS=0", "a follower lags, and its waiter lists the line again",
		`c Watch 2 waiting; Delete; Apply; c Event 2 listing; c Hold`},
	{"expired", "-DCUTS=0 -DCANCELS=0", "the session of a waiter ends early, and the next one goes on",
		`c Watch waiting; Watch waiting; Expire c; c Expired; Hold`},
	{"cancelled-create", "-DENDS=0", "a caller gives up, and its create is executed nevertheless",
		`c Cancel creating; c Create; c Answer idle; c Delete; Hold`},
}

// TestTracesAreRunsOfTheModel makes each run of spin's again. With -update it looks for runs that
// match the patterns, and writes them.
func TestTracesAreRunsOfTheModel(t *testing.T) {
	requireSpin(t)
	for _, tr := range traces {
		t.Run(tr.name, func(t *testing.T) {
			file := filepath.Join("testdata", tr.name+".trace")
			if *update && check(t, file, tr.shows, tr.flags, tr.pattern) != nil {
				write(t, file, tr.shows, tr.flags, tr.pattern)
			}
			require.NoError(t, check(t, file, tr.shows, tr.flags, tr.pattern), "go test -run Traces -update looks for another one")
		})
	}
}

// check reports what is wrong with a stored run.
func check(t *testing.T, file, shows, flags, pattern string) error {
	stored, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var seed int
	header := fmt.Sprintf("# %s: spin %s -n", shows, flags)
	rest, ok := strings.CutPrefix(string(stored), header)
	_, err = fmt.Sscan(rest, &seed)
	_, steps, _ := strings.Cut(rest, "\n")
	switch {
	case !ok || err != nil:
		return fmt.Errorf("%s does not begin with %q and a number", file, header)
	case steps != simulate(t, seed, flags):
		return fmt.Errorf("%s is not the run of the model with this seed", file)
	case !matches(steps, pattern):
		return fmt.Errorf("%s has no match of %q", file, pattern)
	}
	return nil
}

func write(t *testing.T, file, shows, flags, pattern string) {
	for seed := 1; seed < 2000; seed++ {
		if steps := simulate(t, seed, flags); matches(steps, pattern) {
			header := fmt.Sprintf("# %s: spin %s -n%d\n", shows, flags, seed)
			require.NoError(t, os.WriteFile(file, []byte(header+steps), 0o644))
			return
		}
	}
	t.Fatalf("no run matches %q", pattern)
}

// simulate returns the steps of one random run.
func simulate(t *testing.T, seed int, flags string) string {
	args := append([]string{"-T", fmt.Sprintf("-n%d", seed), "-DREPLAY", "-DNODES=3"}, strings.Fields(flags)...)
	model, err := filepath.Abs("line.pml")
	require.NoError(t, err)
	spin := exec.CommandContext(t.Context(), "spin", append(args, model)...)
	spin.Dir = t.TempDir() // where it leaves a file
	out, err := spin.Output()
	require.NoError(t, err, "%s", out)
	return strings.Join(regexp.MustCompile(`(?m)^\d [A-Z][a-z]+ .*\n`).FindAllString(string(out), -1), "")
}

// matches reports whether a run has the steps of a pattern, in this order, for one contender c.
func matches(steps, pattern string) bool {
	for c := range 3 {
		wanted := strings.Split(strings.ReplaceAll(pattern, "c ", fmt.Sprintf("%d ", c)), "; ")
		for step := range strings.Lines(steps) {
			if len(wanted) > 0 && fits(step, strings.Fields(strings.ReplaceAll(wanted[0]+" ", " c ", fmt.Sprintf(" %d ", c)))) {
				wanted = wanted[1:]
			}
		}
		if len(wanted) == 0 {
			return true
		}
	}
	return false
}

// fits reports whether a step has all words of a pattern, in this order.
func fits(step string, words []string) bool {
	for _, word := range strings.Fields(step) {
		if len(words) > 0 && words[0] == word {
			words = words[1:]
		}
	}
	return len(words) == 0
}

// A step is a line of a trace. See line.pml.
type step struct {
	who      int // a contender, or 3 for the ensemble
	what     string
	number   int // of a node, of a transaction, or of the contender whose session expires
	server   int // 1: the leader, 2: the follower
	next     string
	holds    string // a digit for each contender
	existing string // a digit for each node
}

func (s step) String() string {
	return fmt.Sprintf("%d %s %d %d %s %s %s", s.who, s.what, s.number, s.server, s.next, s.holds, s.existing)
}

func readTrace(t *testing.T, name string) (all []step) {
	content, err := os.ReadFile(filepath.Join("testdata", name+".trace"))
	require.NoError(t, err)
	for lines := bufio.NewScanner(bytes.NewReader(content)); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		var s step
		_, err := fmt.Sscan(lines.Text(), &s.who, &s.what, &s.number, &s.server, &s.next, &s.holds, &s.existing)
		require.NoError(t, err, lines.Text())
		all = append(all, s)
	}
	require.NotEmpty(t, all)
	return all
}

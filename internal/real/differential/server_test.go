package differential_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble"
)

// attempts is how often in a row a difference or a fault must show. A real server that was already
// running deletes containers at any time, and its sessions expire if the machine is suspended.
const attempts = 3

// A pair is a real server and an embedded server to compare with it.
type pair struct {
	real    string // host and port
	version string // what the embedded server is told to behave like
	root    string // prefix of the roots of this pair's runs
	runs    int
	answers counts // of the real server
}

// counts holds the number of answers and events of each kind.
type counts map[string]int

func (c counts) add(lines []string) {
	for _, line := range lines {
		words := strings.Fields(line)
		switch {
		case len(words) > 3 && words[2] == "code":
			c[words[1]+" "+words[3]]++
		case len(words) > 5 && words[4] == "event":
			c["event "+words[5]]++
		case len(words) > 1 && !strings.HasSuffix(words[0], "."):
			c[words[1]]++
		}
	}
}

func (c counts) String() string {
	var list []string
	for _, kind := range slices.Sorted(maps.Keys(c)) {
		list = append(list, fmt.Sprintf("%s: %d", kind, c[kind]))
	}
	return strings.Join(list, ", ")
}

func newPair(t *testing.T) *pair {
	t.Helper()
	hosts, chroot, _ := strings.Cut(realServer(t), "/")
	host, _, _ := strings.Cut(hosts, ",")
	if chroot != "" {
		chroot = "/" + chroot
	}

	version := recipestest.Attach(t, host).Version()
	config, ok := map[string]string{"3.8.0": "3.8", "3.9.3": "3.9"}[version]
	if !ok {
		t.Skipf("the embedded server behaves like ZooKeeper 3.8.0 or 3.9.3, not like %s", version)
	}
	t.Logf("ZooKeeper %s", version)
	return &pair{real: host, version: config, root: chroot + "/differential-" + strings.ToLower(rand.Text()[:8]), answers: make(counts)}
}

// realServer returns the connect string of a real server. Unless it was already running, it deletes
// no containers.
func realServer(t *testing.T) string {
	t.Helper()
	if os.Getenv("ZKRECIPES_SERVERS") != "" {
		return ensemble.Real(t).ConnectString()
	}
	return ensemble.Start(t, 1, ensemble.WithJVMFlags("-Dznode.container.checkIntervalMs=86400000")).ConnectString()
}

// difference carries out the steps on both servers and returns their first difference, or the empty
// string.
func (p *pair) difference(steps []step) (diff string, err error) {
	for range attempts {
		if diff, err = p.compareOnce(steps); diff == "" && err == nil {
			break
		}
	}
	return diff, err
}

func (p *pair) compareOnce(steps []step) (string, error) {
	p.runs++
	root := fmt.Sprintf("%s-%d", p.root, p.runs)

	want, err := playAt(p.real, root, steps)
	if err != nil {
		return "", fmt.Errorf("real server: %w\n%s", err, strings.Join(want, "\n"))
	}
	p.answers.add(want)

	s, err := embedded.Start(embedded.Config{
		Version: p.version, TickTime: 500 * time.Millisecond, ContainerInterval: time.Hour,
	})
	if err != nil {
		return "", err
	}
	defer s.Close()

	got, err := playAt(s.ConnectString(), root, steps)
	if err != nil {
		return "", fmt.Errorf("embedded server: %w\n%s", err, strings.Join(got, "\n"))
	}

	return firstDifference(want, got), nil
}

func firstDifference(want, got []string) string {
	if slices.Equal(want, got) {
		return ""
	}
	want, got = append(want, "end of transcript"), append(got, "end of transcript")
	i := 0
	for want[i] == got[i] {
		i++
	}
	return fmt.Sprintf("%s\nreal:     %s\nembedded: %s", strings.Join(want[:i], "\n"), want[i], got[i])
}

// playAt carries out the steps below root, which it creates before and deletes afterwards.
func playAt(address, root string, steps []step) (lines []string, err error) {
	j := &janitor{newRun(address, "", "")}
	if err := j.prepare(root); err != nil {
		return nil, err
	}

	r := newRun(address, root, j.at.ip)
	lines, err = r.play(steps)
	return lines, errors.Join(err, r.finish(), j.cleanUp(root))
}

// A janitor creates the roots of runs and deletes them.
type janitor struct{ *run }

func (j *janitor) prepare(root string) error {
	return attempt(func() {
		p := j.peers[0]
		j.connect(p, 0, nil, 0)
		j.at.ip = j.whoAmI(p)
		j.call(p, xidAuth, opAuth, packet{}.int32(0).string("digest").buffer([]byte(janitorCredentials)))

		if code, _ := j.ask(p, request{op: opCreate, path: root, acl: openACL}); code != 0 {
			check(fmt.Errorf("create %s: code %d", root, code))
		}
	})
}

// cleanUp deletes the root with all its descendants and closes the janitor's session.
func (j *janitor) cleanUp(root string) error {
	return errors.Join(attempt(func() {
		if left := j.remove(root); left != nil {
			check(fmt.Errorf("cannot remove %q", left))
		}
	}), j.finish())
}

func (j *janitor) remove(path string) (left []string) {
	_, m := j.ask(j.peers[0], request{op: opGetChildren, path: path})
	for _, name := range m.strings() {
		left = append(left, j.remove(path+"/"+name)...)
	}
	if code, _ := j.ask(j.peers[0], request{op: opDelete, path: path, version: -1}); code != 0 && code != -101 {
		left = append(left, fmt.Sprintf("%s: code %d", path, code))
	}
	return left
}

func (j *janitor) whoAmI(p *peer) string {
	_, m := j.ask(p, request{op: opWhoAmI})
	m.int32()
	m.string()
	return m.string()
}

// ask sends one request and returns its answer.
func (j *janitor) ask(p *peer, r request) (int32, *message) {
	p.xid++
	p.nc.Write(append(packet{}.int32(p.xid).int32(r.op), j.at.body(r)...).frame())
	m, err := p.receive()
	check(err)
	m.int32()
	m.int64()
	return m.int32(), m
}

// requireNoDifference fails the test if the servers differ.
func (p *pair) requireNoDifference(t *testing.T, steps []step) {
	t.Helper()
	diff, err := p.difference(steps)
	require.NoError(t, err)
	require.Empty(t, diff)
}

package transcript

import (
	"errors"
	"fmt"
	"net"

	"github.com/zkrecipes/zkrecipes/internal/must"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

// Play carries out the steps below root, which it creates before and deletes afterwards, and
// returns the lines of the transcript. An error says that the server cannot be reached or does not
// answer.
func Play(dial func() (net.Conn, error), root string, steps []Step) (lines []string, err error) {
	// A session of its own prepares and cleans up, so the steps can't get in its way.
	j := &janitor{newRun(dial, "", "")}
	if err := j.prepare(root); err != nil {
		return nil, err
	}

	r := newRun(dial, root, j.at.ip)
	lines, err = r.play(steps)
	return lines, errors.Join(err, r.finish(), j.cleanUp(root))
}

// A janitor creates the roots of runs and deletes them.
type janitor struct{ *run }

func (j *janitor) prepare(root string) error {
	return must.Try(func() {
		p := j.peers[0]
		j.connect(p, 0, nil, 0)
		j.at.ip = j.whoAmI(p)
		j.auth(p, "digest", janitorCredentials)

		if code, _ := j.ask(p, request{op: zkwire.OpCreate, path: root, acl: openACL}); code != 0 {
			must.Fail("create %s: code %d", root, code)
		}
	})
}

// cleanUp deletes the root with all its descendants and closes the janitor's session.
func (j *janitor) cleanUp(root string) error {
	return errors.Join(must.Try(func() {
		if left := j.remove(root); left != nil {
			must.Fail("cannot remove %q", left)
		}
	}), j.finish())
}

func (j *janitor) remove(path string) (left []string) {
	_, m := j.ask(j.peers[0], request{op: zkwire.OpGetChildren, path: path})
	for _, name := range m.Strings() {
		left = append(left, j.remove(path+"/"+name)...)
	}
	if code, _ := j.ask(j.peers[0], request{op: zkwire.OpDelete, path: path, version: -1}); code != 0 && code != -101 {
		left = append(left, fmt.Sprintf("%s: code %d", path, code))
	}
	return left
}

func (j *janitor) whoAmI(p *peer) string {
	_, m := j.ask(p, request{op: zkwire.OpWhoAmI})
	m.Int32()      // how many
	_ = m.String() // the scheme
	return m.String()
}

// ask sends one request and returns its answer.
func (j *janitor) ask(p *peer, r request) (int32, *zkwire.Decoder) {
	p.xid++
	p.nc.Write(frame(p.xid, r.op, j.at.body(nil, r)))
	m := must.Get(p.receive())
	m.Int32()
	m.Int64()
	return m.Int32(), m
}

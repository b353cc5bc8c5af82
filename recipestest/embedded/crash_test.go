package embedded_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// A rig sends the same requests to a server that is restarted and to one that is not.
type rig struct {
	t      *testing.T
	cfg    embedded.Config
	kept   *embedded.Server
	client *wireClient // of the server that is restarted
	model  *wireClient // of the other one

	follower *embedded.Follower // of the server that is restarted
	reader   *wireClient        // of the follower
	frozen   []string           // what the follower shows while it lags
}

// start starts the server, with a follower.
func (r *rig) start(t *rapid.T) {
	r.kept = suite.Got(embedded.Start(r.cfg))(t)
	r.follower, r.frozen = r.kept.Follower(), nil
	r.reader = connect(r.t, r.follower, hello{})
}

// lag makes the follower lag, or catch up.
func (r *rig) lag(t *rapid.T) {
	if r.frozen == nil {
		r.frozen = walk(t, r.reader)
		r.follower.Lag(time.Hour)
		return
	}
	require.Equal(t, r.frozen, walk(t, r.reader), "the follower does not lag")
	r.catchUp(t)
}

func (r *rig) catchUp(t *rapid.T) {
	r.follower.Lag(0)
	r.frozen = nil
	suite.Got(r.reader.call(zkwire.OpSync, packet{}.string("/")))(t)
	require.Equal(t, walk(t, r.client), walk(t, r.reader), "the follower is not as the leader")
}

// expire ends the sessions at both servers, and begins others.
func (r *rig) expire(t *rapid.T, model *embedded.Server) {
	require.True(t, r.kept.ExpireSession(r.client.session))
	require.True(t, model.ExpireSession(r.model.session))
	r.client, r.model = connect(r.t, r.kept, hello{}), connect(r.t, model, hello{})
}

// send sends a request to both and requires the same code.
func (r *rig) send(t *rapid.T, op zkwire.Op, body packet) {
	got := suite.Got(r.client.call(op, body))(t)
	want := suite.Got(r.model.call(op, body))(t)
	require.Equal(t, want.code, got.code)
}

// restart replaces the server by one with the same directory, or with a copy of it as it would be
// after a crash, and resumes the session.
func (r *rig) restart(t *rapid.T, crash bool) {
	r.catchUp(t)
	before := walk(t, r.client)
	if crash {
		r.cfg.Dir = copied(r.t, r.cfg.Dir)
	}
	require.NoError(t, r.kept.Close())

	r.start(t)
	session := r.client.session
	r.client = connect(r.t, r.kept, hello{session: session, password: r.client.password})
	require.Equal(t, session, r.client.session)
	require.Equal(t, before, walk(t, r.client))
	require.Equal(t, comparable(walk(t, r.model)), comparable(before))
}

var (
	unlike = regexp.MustCompile(`(Czxid|Mzxid|Ctime|Mtime|Pzxid):\d+ ?`)
	owner  = regexp.MustCompile(`EphemeralOwner:[1-9]\d*`)
)

// comparable returns what walk returns, without what differs between two servers.
func comparable(nodes []string) []string {
	for i, n := range nodes {
		n, _, _ = strings.Cut(n, " acl ")
		nodes[i] = owner.ReplaceAllString(unlike.ReplaceAllString(n, ""), "EphemeralOwner:session")
	}
	return nodes
}

// A follower shows what its leader had when its lag began, and what the leader has after a sync
// without a lag.
func TestTreeIsTheSameAfterAnyRestartAndAtAFollower(t *testing.T) {
	t.Parallel()
	path := rapid.SampledFrom([]string{"/a", "/b", "/a/a", "/a/b", "/b/a", "/a/a/a", "/none/a"})
	version := rapid.SampledFrom([]int32{-1, -1, -1, 0, 1})
	data := rapid.SampledFrom([][]byte{nil, {}, []byte("data")})

	rapid.Check(t, func(rt *rapid.T) {
		r := &rig{t: t, cfg: kept(t.TempDir()).WithLogSize(int64(rapid.SampledFrom([]int{1, 500, 1 << 20}).Draw(rt, "log")))}
		r.start(rt)
		defer func() { r.kept.Close() }()
		r.client = connect(t, r.kept, hello{})
		model := suite.Got(embedded.Start(embedded.Config{InMemory: true}))(rt)
		defer model.Close()
		r.model = connect(t, model, hello{})

		rt.Repeat(map[string]func(*rapid.T){
			"create": func(rt *rapid.T) {
				flags := rapid.Int32Range(0, 3).Draw(rt, "flags")
				r.send(rt, zkwire.OpCreate, packet{}.create(path.Draw(rt, "path"), data.Draw(rt, "data"), flags))
			},
			"container": func(rt *rapid.T) {
				r.send(rt, zkwire.OpCreateContainer, packet{}.create(path.Draw(rt, "path"), nil, 4))
			},
			"delete": func(rt *rapid.T) {
				r.send(rt, zkwire.OpDelete, packet{}.string(path.Draw(rt, "path")).int32(version.Draw(rt, "version")))
			},
			"setData": func(rt *rapid.T) {
				r.send(rt, zkwire.OpSetData, packet{}.string(path.Draw(rt, "path")).buffer(data.Draw(rt, "data")).int32(version.Draw(rt, "version")))
			},
			"setACL": func(rt *rapid.T) {
				r.send(rt, zkwire.OpSetACL, packet{}.string(path.Draw(rt, "path")).open().int32(version.Draw(rt, "version")))
			},
			"multi": func(rt *rapid.T) {
				p := path.Draw(rt, "path")
				r.send(rt, zkwire.OpMulti, packet{}.part(zkwire.OpCreate).create(p, nil, 0).part(zkwire.OpSetData).string(p).buffer(data.Draw(rt, "data")).int32(0).
					part(zkwire.OpCreate).create("/m-", nil, 2).part(zkwire.OpDelete).string(path.Draw(rt, "other")).int32(-1).end())
			},
			"lag":     r.lag,
			"expire":  func(rt *rapid.T) { r.expire(rt, model) },
			"restart": func(rt *rapid.T) { r.restart(rt, false) },
			"crash":   func(rt *rapid.T) { r.restart(rt, true) },
		})
		r.restart(rt, rapid.Bool().Draw(rt, "crash"))
	})
}

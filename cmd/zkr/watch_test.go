package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/group"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func TestWatchPrintsEachChange(t *testing.T) {
	each(t, func(t *testing.T, s *recipestest.Server) {
		root, servers := s.Root(t), s.ConnectString()
		var term *election.Term
		var member *group.Member
		set := func(data string) error { succeed(t, servers, "value", "set", root+"/value", data); return nil }
		setBarrier := func(path string) error { succeed(t, servers, "barrier", "set", root+path); return nil }
		campaign := func() (err error) {
			term, err = election.New(client(t, s), root+"/leader").Campaign(t.Context(), []byte("http://a:80"))
			return err
		}
		join := func() (err error) {
			member, err = group.New(client(t, s), root+"/group").Join(t.Context(), "b", nil)
			return err
		}

		type change struct {
			do     func() error
			output string // a pattern
		}
		for _, watch := range []struct {
			args    []string
			first   string // a pattern of the output before any change
			changes []change
		}{
			{[]string{"value", "watch", root + "/value"}, `\A\n\z`, []change{
				{func() error { return set("41") }, `\A\n41\n\z`},
				{func() error { return set("\x1b") }, `41\n"\\x1b"\n\z`},
				{func() error { succeed(t, servers, "value", "delete", root+"/value"); return nil }, `\n\n\z`},
			}},
			{[]string{"leader", root + "/leader", "--watch"}, `\A\n\z`, []change{
				{campaign, `\A\nhttp://a:80\n\z`},
				{func() error { return term.Proclaim(t.Context(), []byte("\x1b[2J\xff")) }, `\n"\\x1b\[2J\\xff"\n\z`},
				{func() error { return term.Resign(t.Context()) }, `\n\n\z`},
			}},
			{[]string{"leader", root + "/leader", "--watch", "--json"}, `\A{"vacant":true}\n\z`, []change{
				{campaign, `,"data":"http://a:80"}\n\z`},
			}},
			{[]string{"group", "members", root + "/group", "--watch", "--json"}, `\A\[\]\n\z`, []change{
				{join, `\A\[\]\n\[{"name":"b"[^\n]*\n\z`},
				{func() error { return member.Leave(t.Context()) }, `\n\[\]\n\z`},
			}},
			{[]string{"ps", root + "/ps", "--watch", "--interval", "100ms"}, `there is no such node\n\z`, []change{
				{func() error { return setBarrier("/ps") }, `such node\n\nPATH[^\n]*\n[^\n]*a barrier[^\n]*\n\z`},
			}},
			{[]string{"ps", root + "/ps/2", "--watch", "--json", "--interval", "100ms"}, `"missing"}\n\z`, []change{
				{func() error { return setBarrier("/ps/2") }, `"missing"}\n{[^\n]*"leaf"[^\n]*}\n\z`},
			}},
		} {
			watching := begin(t, servers, watch.args...)
			watching.output.await(t, watch.first)
			for _, c := range watch.changes {
				require.NoError(t, c.do(), watch.args)
				watching.output.await(t, c.output)
			}
			assert.Zero(t, watching.stop(), watch.args)
		}
	})
}

func TestWaitEndsWithWhatItWaitsFor(t *testing.T) {
	each(t, func(t *testing.T, s *recipestest.Server) {
		root, servers := s.Root(t), s.ConnectString()
		succeed(t, servers, "barrier", "set", root+"/barrier")
		waits := map[string][]string{
			"barrier": {"barrier", "wait", root + "/barrier"}, "queue": {"queue", "take", root + "/queue"},
			"leader": {"leader", root + "/leader"},
		}
		for name, args := range waits {
			r := inProcess(t, servers, "", append(args, "--wait", "50ms")...)
			assert.Contains(t, outOfTime, r.status, "%s: %s", name, r.stderr)
		}

		waited := make(map[string]<-chan string)
		for name, args := range waits {
			waited[name] = suite.Later(func() string { return succeed(t, servers, append(args, "--wait", "10m")...) })
		}
		succeed(t, servers, "barrier", "remove", root+"/barrier")
		succeed(t, servers, "queue", "offer", root+"/queue", "late")
		suite.Got(election.New(client(t, s), root+"/leader").Campaign(t.Context(), []byte("me")))(t)
		for name, want := range map[string]string{"barrier": "", "queue": "late", "leader": "me\n"} {
			assert.Equal(t, want, suite.Wait(t, waited[name]), name)
		}
	})
}

package embedded_test

import (
	"fmt"
	"io"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

func word(t *testing.T, s *embedded.Server, w string) string {
	t.Helper()
	nc := openRaw(t, s)
	suite.Got(nc.Write([]byte(w)))(t)
	answer := suite.Got(io.ReadAll(nc))(t)
	return string(answer)
}

func TestFourLetterWords(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Config{InMemory: true})
	c := connect(t, s, hello{timeout: 10000})
	c.must(t, zkwire.OpCreate, packet{}.create("/mine", []byte("x"), 1))
	c.must(t, zkwire.OpExists, packet{}.string("/mine").bool(true))
	connect(t, s.Follower(), hello{}).must(t, zkwire.OpExists, packet{}.string("/mine").bool(true))
	last := c.must(t, zkwire.OpGetChildren, packet{}.string("/").bool(true)).zxid

	require.Equal(t, "imok", word(t, s, "ruok"))
	require.Equal(t, "imok", word(t, s, "ruok\n"))
	require.Equal(t, "rw", word(t, s, "isro"))
	require.Contains(t, word(t, s, "conf"), "tickTime=2000\nminSessionTimeout=4000\nmaxSessionTimeout=40000\n")
	require.Contains(t, word(t, s, "envi"), "zookeeper.version=3.8.0-")
	newer := start(t, embedded.Config{InMemory: true, Version: "3.9"})
	require.Contains(t, word(t, newer, "srvr"), "Zookeeper version: 3.9.3-")
	require.Contains(t, word(t, s, "srvr"), fmt.Sprintf("Zxid: %#x\nMode: standalone\nNode count: 6\n", last))
	require.Contains(t, word(t, s, "stat"), "Clients:\n /127.0.0.1:2181[1](queued=0,recved=4,sent=4)\n")
	require.Contains(t, word(t, s, "cons"), fmt.Sprintf("recved=4,sent=4,sid=0x%x,lop=GETC,", c.session))
	require.Equal(t, "2 connections watching 2 paths\nTotal watches:2\n", word(t, s, "wchs"))
	mntr := word(t, s, "mntr")
	for _, line := range []string{
		"zk_server_state\tstandalone\n", "zk_znode_count\t6\n", "zk_watch_count\t3\n",
		"zk_ephemerals_count\t1\n", "zk_num_alive_connections\t3\n", "zk_global_sessions\t2\n",
	} {
		require.Contains(t, mntr, line)
	}
}

func TestFourLetterWordsOfGoZookeeper(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Config{})
	c := dial(t, s)
	servers := []string{s.ConnectString()}
	require.Equal(t, []bool{true}, zk.FLWRuok(servers, waitLimit))
	stats, ok := zk.FLWSrvr(servers, waitLimit)
	require.True(t, ok, "%+v", stats)
	require.Equal(t, zk.ModeStandalone, stats[0].Mode)
	// With any server, go-zookeeper fails to parse its own connection, which has no session.
	clients, _ := zk.FLWCons(servers, waitLimit)
	require.Len(t, clients[0].Clients, 1)
	require.Equal(t, c.SessionID(), clients[0].Clients[0].SessionID)
}

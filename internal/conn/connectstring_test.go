package conn

import (
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/layout"
)

func TestConnectStrings(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]struct {
		servers []string
		chroot  string
	}{
		"zk":                             {[]string{"zk:2181"}, ""},
		"zk:1":                           {[]string{"zk:1"}, ""},
		"zk1:2181,zk2:2182":              {[]string{"zk1:2181", "zk2:2182"}, ""},
		"zk1, zk2:2182 ,zk3/":            {[]string{"zk1:2181", "zk2:2182", "zk3:2181"}, ""},
		"zk/app":                         {[]string{"zk:2181"}, "/app"},
		"zk1,zk2:2181/app/of mine":       {[]string{"zk1:2181", "zk2:2181"}, "/app/of mine"},
		"127.0.0.1:2181":                 {[]string{"127.0.0.1:2181"}, ""},
		"::1":                            {[]string{"[::1]:2181"}, ""},
		"[::1]":                          {[]string{"[::1]:2181"}, ""},
		"[fe80::1%eth0]":                 {[]string{"[fe80::1%eth0]:2181"}, ""},
		"[fe80::1]:99,2001:db8::2/a/b/c": {[]string{"[fe80::1]:99", "[2001:db8::2]:2181"}, "/a/b/c"},
	} {
		servers, chroot, err := ParseConnectString(s)
		require.NoError(t, err, s)
		require.Equal(t, want.servers, servers, s)
		require.Equal(t, want.chroot, chroot, s)
	}

	for _, s := range []string{
		"", "/", "/app", ",", "zk,", ",zk", "zk,,zk", " ", ":2181", "zk:", "zk:0", "zk:65536", "zk:-1", "zk:port",
		"zk:2181:2181", "zk//", "zk//app", "zk/app/", "zk/app//", "zk/a//b", "zk/./a", "zk/a/..", "zk/a\x00", "zk/\xff", "zk,/a",
		"[zk", "zk]", "[zk]", "0]0", "[]", "[::1", "::1]", "[[::1]]", "zk 1", "zk\t:1",
		"zk1\nzk2", `"zk1:2181,zk2:2181"`, "zk1;zk2", "$(ZK_HOST):2181", "<nil>", "zk1:2181/app,zk2", "zk/app,h2",
		"zk/app ", "zk/ app", "zk/app\u00a0", "zk/app\u200b", "zk/a /b",
	} {
		_, _, err := ParseConnectString(s)
		require.Error(t, err, "%q", s)
	}
}

func FuzzConnectString(f *testing.F) {
	for _, s := range []string{"zk1:2181,zk2/app", "[::1]:1,::2/", "a,b//", "zk/%2F/..", ",", "[zk", "0]0", "é:2181/\U0001f600"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		servers, chroot, err := ParseConnectString(s)
		if err != nil {
			return
		}
		require.NotEmpty(t, servers)
		for _, server := range servers {
			host, port, err := net.SplitHostPort(server)
			require.NoError(t, err, server)
			require.NotEmpty(t, host)
			n, err := strconv.Atoi(port)
			require.NoError(t, err)
			require.Positive(t, n)
		}
		if chroot != "" {
			require.NoError(t, layout.ValidatePath(chroot+"/child"), "a path below the chroot")
		}
		again, sameChroot, err := ParseConnectString(strings.Join(servers, ",") + chroot)
		require.NoError(t, err, "what was understood is understood again")
		require.Equal(t, servers, again)
		require.Equal(t, chroot, sameChroot)
	})
}

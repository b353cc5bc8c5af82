package embedded_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// missing skips a test because a tool is missing, or fails it if tools are required.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("ZKRECIPES_REQUIRE_REAL") == "1" {
		require.FailNow(t, what+" is missing, and ZKRECIPES_REQUIRE_REAL=1")
	}
	t.Skip(what + " is missing")
}

func run(t *testing.T, name string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	return string(out), err
}

const kazooScript = `
import sys, threading
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError, NodeExistsError, BadVersionError, NotEmptyError, RolledBackError
from kazoo.security import make_digest_acl

def wait(event):
    assert event.wait(20), "no event came"

a, b = KazooClient(sys.argv[1]), KazooClient(sys.argv[1])
a.start(); b.start()
assert a.server_version()[:2] == (3, 8), a.server_version()
assert a.command(b"ruok") == "imok"

# Create, list, read, write, delete.
assert a.create("/k/deep/node", b"data", makepath=True) == "/k/deep/node"
assert a.get_children("/k") == ["deep"]
path, stat = a.create("/k/n-", b"", ephemeral=True, sequence=True, include_data=True)
assert path == "/k/n-0000000001", path
assert stat.ephemeralOwner == a.client_id[0]
data, stat = b.get("/k/deep/node")
assert (data, stat.version) == (b"data", 0)
assert b.set("/k/deep/node", b"more", version=0).version == 1
for error, call in [
    (BadVersionError, lambda: b.set("/k/deep/node", b"", version=0)),
    (NodeExistsError, lambda: b.create("/k")),
    (NoNodeError, lambda: b.get("/none")),
    (NotEmptyError, lambda: b.delete("/k")),
]:
    try:
        call()
    except error:
        continue
    raise AssertionError(error)

# Watches.
changed, children = threading.Event(), threading.Event()
b.get("/k/deep/node", watch=lambda e: changed.set())
b.get_children("/k", watch=lambda e: children.set())
a.set("/k/deep/node", b"again")
a.create("/k/other")
wait(changed); wait(children)

# Transactions.
t = a.transaction()
t.create("/k/t", b"x"); t.set_data("/k/t", b"y"); t.check("/k/t", 1); t.delete("/k/other")
results = t.commit()
assert results[0] == "/k/t" and results[1].version == 1 and results[2:] == [True, True], results
t = a.transaction()
t.create("/k/u"); t.check("/k/u", 7); t.delete("/k/t")
results = t.commit()
assert isinstance(results[0], RolledBackError) and isinstance(results[1], BadVersionError), results
assert a.exists("/k/u") is None and a.exists("/k/t")

# Access control.
a.add_auth("digest", "me:secret")
a.create("/k/secret", b"s", acl=[make_digest_acl("me", "secret", all=True)])
try:
    b.get("/k/secret")
    raise AssertionError("no secret")
except Exception as e:
    assert type(e).__name__ == "NoAuthError", e

# A lock, from one to the other.
first, second = a.Lock("/k/lock", "a"), b.Lock("/k/lock", "b")
assert first.acquire(timeout=20)
assert second.acquire(blocking=False) is False
assert second.contenders() == ["a"]
got = threading.Event()
threading.Thread(target=lambda: second.acquire(timeout=20) and got.set()).start()
while len(first.contenders()) < 2:
    pass
first.release()
wait(got)
a.stop(); b.stop()
print("the end")
`

func TestKazoo(t *testing.T) {
	t.Parallel()
	python := ""
	for _, candidate := range []string{"python3", "/usr/bin/python3"} {
		if _, err := run(t, candidate, "-c", "import kazoo"); err == nil {
			python = candidate
			break
		}
	}
	if python == "" {
		missing(t, "python3 with kazoo")
	}
	s := start(t, embedded.Config{})
	out, err := run(t, python, "-c", kazooScript, s.ConnectString())
	require.NoError(t, err, out)
	require.Contains(t, out, "the end")
}

// zkCli runs commands in ZooKeeper's command line client and returns its output.
func zkCli(t *testing.T, s *embedded.Server, commands ...string) string {
	t.Helper()
	name, args := "zkCli.sh", []string{}
	if _, err := exec.LookPath(name); err != nil {
		name, args = "java", []string{"-Xmx64m", "-cp", "/usr/share/java/*", "org.apache.zookeeper.ZooKeeperMain"}
		if _, err := exec.LookPath(name); err != nil {
			missing(t, "zkCli.sh or java")
		}
		if _, err := os.Stat("/usr/share/java/zookeeper.jar"); err != nil {
			missing(t, "/usr/share/java/zookeeper.jar")
		}
	}

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, append(args, "-server", s.ConnectString())...)
	cmd.Stdin = strings.NewReader(strings.Join(commands, "\n") + "\n")

	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}

func TestZkCli(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Config{})
	out := zkCli(t, s,
		"create /j one",
		"create -e -s /j/n- x",
		"create -c /j/container",
		"create -t 60000 /j/ttl",
		"create /j one",
		"ls -s -w /j",
		"create /j/new",
		"get -s /j",
		"set /j two",
		"stat /j",
		"getAllChildrenNumber /j",
		"getEphemerals /j",
		"addWatch -m PERSISTENT_RECURSIVE /j",
		"delete /j/new",
		"removewatches /j",
		"addauth digest me:secret",
		"setAcl /j/ttl auth::cdrwa",
		"getAcl /j/ttl",
		"whoami",
		"sync /j",
		"listquota /j",
		"version",
		"deleteall /j",
		"ls /",
		"quit",
	)

	for _, want := range []string{
		"Created /j\n",
		"Created /j/n-0000000000\n",
		"Created /j/container\n",
		"Created /j/ttl\n",
		"Node already exists: /j\n",
		"type:NodeChildrenChanged path:/j",
		"one\n",
		"numChildren = 4\n",
		"dataVersion = 1\n",
		"[/j/n-0000000000]\n",
		"type:NodeDeleted path:/j/new",
		"'digest,'me:",
		"digest: me\n",
		"Sync is OK\n",
		"[zookeeper]\n",
	} {
		require.Contains(t, out, want)
	}
}

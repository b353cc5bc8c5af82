package embedded

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"log/slog"
	"math"
	"os"
	"time"
)

// logSize is when the data file is replaced by a snapshot: at this size beyond twice the last
// snapshot's.
const logSize = 64 << 20

// Config configures a server. The zero value is a server on a free port of 127.0.0.1 with
// ZooKeeper's own defaults.
type Config struct {
	// Address is the TCP address to listen on. Defaults to "127.0.0.1:0", a free port of the
	// loopback interface.
	Address string

	// InMemory starts the server without a listener: clients reach it only through [Server.Dial].
	// Required inside a testing/synctest bubble.
	InMemory bool

	// Version is the version of ZooKeeper that the server behaves like: "3.8" or "3.9". Defaults to
	// "3.8". "Versions" in the package documentation lists what differs.
	Version string

	// TickTime is the unit of session expiry: a session ends at the first tick after its timeout.
	// Whole milliseconds. Defaults to 2 s.
	TickTime time.Duration

	// MinSessionTimeout and MaxSessionTimeout bound the session timeouts that clients are granted.
	// They default to 2 and 20 ticks.
	MinSessionTimeout, MaxSessionTimeout time.Duration

	// MaxPacket is the size of the largest request in bytes (the real server's jute.maxbuffer). A
	// larger request ends its connection. Defaults to 1048575.
	MaxPacket int

	// MaxCloseSession is the size in bytes of the largest record of a session's end: 4 bytes, and
	// for each of its ephemeral nodes 4 bytes and its path. Defaults to twice MaxPacket. If a
	// session with more is closed or expires, a real server writes the record and can never read
	// its log again (ZOOKEEPER-4306). This server ends before it writes anything: see [Server.Err].
	// The next server on its [Config.Dir] still has the session.
	MaxCloseSession int

	// EnforceAuth refuses every request of a connection that has sent no digest credential, and
	// ends the connection. (In the real server: enforce.auth.enabled.)
	EnforceAuth bool

	// EagerACL makes each server check access control lists by itself, without its leader. It
	// refuses a create, delete, setData or setACL that the lists it has applied forbid, or whose
	// own list is invalid. (In the real server: zookeeper.enableEagerACLCheck, 3.6 and later.) Such
	// an answer has zxid 0, and a follower gives it even if it lags or is isolated.
	EagerACL bool

	// EnforceQuota makes the server refuse a create or setData that exceeds a hard limit of a
	// quota, with the error -125. (In the real server: enforceQuota, 3.7 and later.) A client sets
	// a quota for /a as the real command line client does: it creates
	// /zookeeper/quota/a/zookeeper_limits with data like
	// "count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=5", and then
	// /zookeeper/quota/a/zookeeper_stats. The nearest quota above a node counts.
	EnforceQuota bool

	// ContainerInterval is how often the server deletes empty containers that had children, and TTL
	// nodes that are due. Defaults to 60 s. See also [Server.ReapContainers].
	ContainerInterval time.Duration

	// NoContainers makes the server refuse createContainer, as ZooKeeper 3.4 does. As for any
	// unknown operation, it answers with an error and ends the connection.
	NoContainers bool

	// TLS makes the server speak only TLS. It needs a certificate. By default the server speaks
	// plain text.
	TLS *tls.Config

	// Dir is a directory in which the server keeps its nodes and sessions. It is created if it
	// doesn't exist. If a server starts with the directory of a server that has ended (in any way),
	// it goes on with everything that server acknowledged: see "Data across restarts" in the
	// package documentation. By default nothing is kept.
	Dir string

	// Logger receives sessions and refused packets at level debug. With Dir it also receives a
	// warning if the last write was incomplete, and an error if the server ends because it can't
	// write. By default nothing is logged.
	Logger *slog.Logger

	sync    func(*os.File) error // makes the latest writes to a file durable
	logSize int64                // see the constant
}

func (cfg Config) withDefaults() (Config, error) {
	cfg.Address = cmp.Or(cfg.Address, "127.0.0.1:0")
	cfg.Version = cmp.Or(cfg.Version, version38)
	cfg.TickTime = cmp.Or(cfg.TickTime, 2*time.Second)
	cfg.MinSessionTimeout = cmp.Or(cfg.MinSessionTimeout, 2*cfg.TickTime)
	cfg.MaxSessionTimeout = cmp.Or(cfg.MaxSessionTimeout, max(20*cfg.TickTime, cfg.MinSessionTimeout))
	cfg.MaxPacket = cmp.Or(cfg.MaxPacket, 0xfffff)
	// A real server reads records of up to jute.maxbuffer and an extra (as much again, at least
	// 1024 bytes). The sum is capped like a Java int.
	cfg.MaxCloseSession = cmp.Or(cfg.MaxCloseSession, int(min(int64(cfg.MaxPacket)+int64(max(cfg.MaxPacket, 1024)), math.MaxInt32)))
	cfg.ContainerInterval = cmp.Or(cfg.ContainerInterval, time.Minute)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	cfg.logSize = cmp.Or(cfg.logSize, logSize)
	if cfg.sync == nil {
		cfg.sync = (*os.File).Sync
	}

	switch {
	case cfg.Version != version38 && cfg.Version != version39:
		return cfg, fmt.Errorf("version %q is neither %s nor %s", cfg.Version, version38, version39)
	case cfg.TickTime < time.Millisecond:
		return cfg, fmt.Errorf("tick time %v is shorter than 1ms", cfg.TickTime)
	case cfg.MinSessionTimeout < time.Millisecond || cfg.MinSessionTimeout > cfg.MaxSessionTimeout:
		return cfg, fmt.Errorf("session timeouts from %v to %v are not a valid range", cfg.MinSessionTimeout, cfg.MaxSessionTimeout)
	case cfg.MaxSessionTimeout > math.MaxInt32*time.Millisecond:
		return cfg, fmt.Errorf("session timeout %v is too long for the protocol", cfg.MaxSessionTimeout)
	case cfg.MaxPacket < 64 || cfg.MaxPacket > math.MaxInt32:
		return cfg, fmt.Errorf("packet limit of %d bytes is out of range", cfg.MaxPacket)
	case cfg.MaxCloseSession < 4:
		return cfg, fmt.Errorf("closeSession limit of %d bytes is out of range", cfg.MaxCloseSession)
	case cfg.ContainerInterval < 0:
		return cfg, fmt.Errorf("container interval %v is negative", cfg.ContainerInterval)
	}

	return cfg, nil
}

// The versions of ZooKeeper that a server can behave like.
const (
	version38 = "3.8"
	version39 = "3.9"
)

// is39 reports whether the server behaves like ZooKeeper 3.9.
func (cfg Config) is39() bool { return cfg.Version == version39 }

// release is the version that four-letter words report, in a form that monitoring tools can parse.
func (cfg Config) release() string {
	patch := ".0"
	if cfg.is39() {
		patch = ".3"
	}
	return cfg.Version + patch + "-zkrecipes-embedded, built on 01/01/2025 00:00 UTC"
}

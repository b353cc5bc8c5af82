package conn

import (
	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

// watchKinds says which lists of a setWatches request have a path. Each list is a bit.
type watchKinds uint8

const (
	dataWatch watchKinds = 1 << iota
	existWatch
	childWatch
)

// setBy returns the kind of watch that zk.Conn sets when a request with a watch is answered with
// this code.
func setBy(op zkwire.Op, code zkwire.Code) watchKinds {
	switch {
	case code == zkwire.CodeOK && (op == zkwire.OpGetData || op == zkwire.OpExists):
		return dataWatch
	case code == zkwire.CodeNoNode && op == zkwire.OpExists:
		return existWatch
	case code == zkwire.CodeOK && (op == zkwire.OpGetChildren || op == zkwire.OpGetChildren2):
		return childWatch
	}

	return 0
}

// firedBy returns the kinds of watches that an event ends in zk.Conn.
func firedBy(e zk.EventType) watchKinds {
	switch e {
	case zk.EventNodeCreated:
		return existWatch
	case zk.EventNodeDataChanged:
		return existWatch | dataWatch
	case zk.EventNodeChildrenChanged:
		return childWatch
	case zk.EventNodeDeleted:
		return existWatch | dataWatch | childWatch
	}

	return 0
}

// rewatchSize bounds the packets that set watches again. (zk.Conn's packets have 128 KiB, and a
// server with a small jute.maxbuffer ends the connection.) A packet with one long path can be
// larger.
const rewatchSize = 32 << 10

// rewatchWindow is how many of these packets may be unanswered. Requests that renew trust then wait
// for four packets, not for the watches of 100,000 leases on a slow network.
const rewatchWindow = 4

// ownRewatch reports whether a packet that sets watches is ours (and not zk.Conn's).
func ownRewatch(p []byte) bool {
	head, _ := zkwire.ParseRequestHeader(p)
	return head.Xid == zkwire.XidWatches
}

// rewatchPacket returns a packet that sets watches, so that the server reports changes after the
// transaction since. lists has the paths of each kind.
func rewatchPacket(since int64, lists [3][]string) []byte {
	p := zkwire.AppendRequest(nil, zkwire.RequestHeader{Xid: zkwire.XidWatches, Op: zkwire.OpSetWatches})
	p = zkwire.AppendInt64(p, since)
	for _, list := range lists {
		p = zkwire.AppendStrings(p, list)
	}
	return zkwire.SetLength(p)
}

// emptyRewatch returns a packet that sets no watches.
func emptyRewatch() []byte { return rewatchPacket(0, [3][]string{}) }

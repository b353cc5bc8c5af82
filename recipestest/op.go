package recipestest

import (
	"math"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

// Op is an operation of the ZooKeeper protocol, by its number on the wire. Variants of an operation
// count as one: create2 is [OpCreate], getChildren with a Stat is [OpGetChildren], setWatches2 is
// [OpSetWatches].
type Op int32

// A [Link] knows these operations.
const (
	// OpAny means every operation of a session: all but the handshake, pings and watch events.
	OpAny Op = math.MinInt32

	OpConnect Op = Op(zkwire.OpCreateSession) // the handshake that opens or resumes a session
	OpClose   Op = Op(zkwire.OpCloseSession)  // ends the session
	OpEvent   Op = Op(zkwire.OpNotification)  // a watch event, the only packet without a request

	OpCreate          Op = Op(zkwire.OpCreate) // persistent, ephemeral or sequential; the two below are apart
	OpDelete          Op = Op(zkwire.OpDelete)
	OpExists          Op = Op(zkwire.OpExists)
	OpGetData         Op = Op(zkwire.OpGetData)
	OpSetData         Op = Op(zkwire.OpSetData)
	OpGetACL          Op = Op(zkwire.OpGetACL)
	OpSetACL          Op = Op(zkwire.OpSetACL)
	OpGetChildren     Op = Op(zkwire.OpGetChildren)
	OpSync            Op = Op(zkwire.OpSync)
	OpPing            Op = Op(zkwire.OpPing)
	OpCheck           Op = Op(zkwire.OpCheck)
	OpMulti           Op = Op(zkwire.OpMulti)
	OpReconfig        Op = Op(zkwire.OpReconfig)
	OpCheckWatches    Op = Op(zkwire.OpCheckWatches)
	OpRemoveWatches   Op = Op(zkwire.OpRemoveWatches)
	OpCreateContainer Op = Op(zkwire.OpCreateContainer)
	OpCreateTTL       Op = Op(zkwire.OpCreateTTL)
	OpMultiRead       Op = Op(zkwire.OpMultiRead)
	OpAuth            Op = Op(zkwire.OpAuth)
	OpSetWatches      Op = Op(zkwire.OpSetWatches)
	OpSASL            Op = Op(zkwire.OpSASL)
	OpGetEphemerals   Op = Op(zkwire.OpGetEphemerals)
	OpCountChildren   Op = Op(zkwire.OpCountChildren)
	OpAddWatch        Op = Op(zkwire.OpAddWatch)
	OpWhoAmI          Op = Op(zkwire.OpWhoAmI)
)

// opUnknown is a reply whose request isn't known yet, or a packet that is too short.
const opUnknown = Op(zkwire.OpError)

// String returns the name of the operation ("getData", for example).
func (op Op) String() string {
	switch op {
	case OpAny:
		return "any"
	case opUnknown:
		return "unknown"
	}
	return zkwire.Op(op).String()
}

// ordinary reports whether [OpAny] includes op.
func (op Op) ordinary() bool {
	return op != OpConnect && op != OpPing && op != OpEvent
}

// opOf returns the Op of a request. All variants of an operation have the same Op.
func opOf(op zkwire.Op) Op {
	switch op {
	case zkwire.OpGetChildren2:
		return OpGetChildren
	case zkwire.OpCreate2:
		return OpCreate
	case zkwire.OpSetWatches2:
		return OpSetWatches
	}
	return Op(op)
}

package recipestest

import (
	"math"
	"strconv"
)

// Op is an operation of the ZooKeeper protocol, by its number on the wire. Variants of an operation
// are counted as one: create2 is [OpCreate], getChildren with a Stat is [OpGetChildren],
// setWatches2 is [OpSetWatches].
type Op int32

// The operations that a [Link] tells apart.
const (
	// OpAny stands for every operation of a session: all but the handshake, pings and watch events.
	OpAny Op = math.MinInt32

	OpConnect Op = -10 // the handshake that opens or resumes a session
	OpClose   Op = -11 // ends the session
	OpEvent   Op = 0   // a watch event: the only packet without a request

	OpCreate          Op = 1 // persistent, ephemeral or sequential; the two below are apart
	OpDelete          Op = 2
	OpExists          Op = 3
	OpGetData         Op = 4
	OpSetData         Op = 5
	OpGetACL          Op = 6
	OpSetACL          Op = 7
	OpGetChildren     Op = 8
	OpSync            Op = 9
	OpPing            Op = 11
	OpCheck           Op = 13
	OpMulti           Op = 14
	OpReconfig        Op = 16
	OpCheckWatches    Op = 17
	OpRemoveWatches   Op = 18
	OpCreateContainer Op = 19
	OpCreateTTL       Op = 21
	OpMultiRead       Op = 22
	OpAuth            Op = 100
	OpSetWatches      Op = 101
	OpSASL            Op = 102
	OpGetEphemerals   Op = 103
	OpCountChildren   Op = 104
	OpAddWatch        Op = 106
	OpWhoAmI          Op = 107
)

// opUnknown is a reply that was not matched with its request yet, or a packet that is too short.
const opUnknown Op = -1

var opNames = map[Op]string{
	OpAny:             "any",
	OpConnect:         "connect",
	OpClose:           "close",
	OpEvent:           "event",
	OpCreate:          "create",
	OpDelete:          "delete",
	OpExists:          "exists",
	OpGetData:         "getData",
	OpSetData:         "setData",
	OpGetACL:          "getACL",
	OpSetACL:          "setACL",
	OpGetChildren:     "getChildren",
	OpSync:            "sync",
	OpPing:            "ping",
	OpCheck:           "check",
	OpMulti:           "multi",
	OpReconfig:        "reconfig",
	OpCheckWatches:    "checkWatches",
	OpRemoveWatches:   "removeWatches",
	OpCreateContainer: "createContainer",
	OpCreateTTL:       "createTTL",
	OpMultiRead:       "multiRead",
	OpAuth:            "auth",
	OpSetWatches:      "setWatches",
	OpSASL:            "sasl",
	OpGetEphemerals:   "getEphemerals",
	OpCountChildren:   "countChildren",
	OpAddWatch:        "addWatch",
	OpWhoAmI:          "whoAmI",
	opUnknown:         "unknown",
}

// String returns the name of the operation, as in "getData".
func (op Op) String() string {
	if name, ok := opNames[op]; ok {
		return name
	}
	return "op" + strconv.Itoa(int(op))
}

// ordinary reports whether [OpAny] stands for op.
func (op Op) ordinary() bool {
	return op != OpConnect && op != OpPing && op != OpEvent
}

// wireOp returns the Op of a request's number on the wire.
func wireOp(code int32) Op {
	switch code {
	case 12:
		return OpGetChildren
	case 15:
		return OpCreate
	case 105:
		return OpSetWatches
	}

	return Op(code)
}

package zkwire

import "strconv"

// Op is the operation of a request.
type Op int32

// These are the operations of a client. A watch event has OpNotification in place of an operation.
// OpError marks a part of a transaction that failed.
const (
	OpNotification    Op = 0
	OpCreate          Op = 1
	OpDelete          Op = 2
	OpExists          Op = 3
	OpGetData         Op = 4
	OpSetData         Op = 5
	OpGetACL          Op = 6
	OpSetACL          Op = 7
	OpGetChildren     Op = 8
	OpSync            Op = 9
	OpPing            Op = 11
	OpGetChildren2    Op = 12 // with the node's Stat
	OpCheck           Op = 13
	OpMulti           Op = 14
	OpCreate2         Op = 15 // with the node's Stat
	OpReconfig        Op = 16
	OpCheckWatches    Op = 17
	OpRemoveWatches   Op = 18
	OpCreateContainer Op = 19
	OpDeleteContainer Op = 20
	OpCreateTTL       Op = 21
	OpMultiRead       Op = 22
	OpAuth            Op = 100
	OpSetWatches      Op = 101
	OpSASL            Op = 102
	OpGetEphemerals   Op = 103
	OpCountChildren   Op = 104 // of all descendants
	OpSetWatches2     Op = 105 // with persistent watches
	OpAddWatch        Op = 106
	OpWhoAmI          Op = 107
	OpCreateSession   Op = -10 // stands for the handshake in statistics
	OpCloseSession    Op = -11
	OpError           Op = -1
)

var opNames = map[Op]string{
	OpNotification:    "event",
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
	OpGetChildren2:    "getChildren2",
	OpCheck:           "check",
	OpMulti:           "multi",
	OpCreate2:         "create2",
	OpReconfig:        "reconfig",
	OpCheckWatches:    "checkWatches",
	OpRemoveWatches:   "removeWatches",
	OpCreateContainer: "createContainer",
	OpDeleteContainer: "deleteContainer",
	OpCreateTTL:       "createTTL",
	OpMultiRead:       "multiRead",
	OpAuth:            "auth",
	OpSetWatches:      "setWatches",
	OpSASL:            "sasl",
	OpGetEphemerals:   "getEphemerals",
	OpCountChildren:   "countChildren",
	OpSetWatches2:     "setWatches2",
	OpAddWatch:        "addWatch",
	OpWhoAmI:          "whoAmI",
	OpCreateSession:   "connect",
	OpCloseSession:    "close",
	OpError:           "error",
}

// String returns the name of the operation ("getData", for example).
func (op Op) String() string {
	if name, ok := opNames[op]; ok {
		return name
	}
	return "op" + strconv.Itoa(int(op))
}

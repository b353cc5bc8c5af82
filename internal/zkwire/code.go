package zkwire

import "strconv"

// Code is the error code of a reply.
type Code int32

// The error codes that our code handles. Codes above -100 are the server's own troubles.
const (
	CodeOK                      Code = 0
	CodeRuntimeInconsistency    Code = -2
	CodeConnectionLoss          Code = -4
	CodeMarshallingError        Code = -5
	CodeUnimplemented           Code = -6
	CodeOperationTimeout        Code = -7
	CodeBadArguments            Code = -8
	CodeNoNode                  Code = -101
	CodeNoAuth                  Code = -102
	CodeBadVersion              Code = -103
	CodeNoChildrenForEphemerals Code = -108
	CodeNodeExists              Code = -110
	CodeNotEmpty                Code = -111
	CodeSessionExpired          Code = -112
	CodeInvalidACL              Code = -114
	CodeAuthFailed              Code = -115
	CodeSessionMoved            Code = -118
	CodeReadOnly                Code = -119
	CodeNoWatcher               Code = -121
	CodeReconfigDisabled        Code = -123
	CodeAuthRequired            Code = -124
	CodeQuotaExceeded           Code = -125
	CodeThrottled               Code = -127
)

var codeNames = map[Code]string{
	CodeOK:                      "ok",
	CodeRuntimeInconsistency:    "runtime inconsistency",
	CodeConnectionLoss:          "connection loss",
	CodeMarshallingError:        "marshalling error",
	CodeUnimplemented:           "unimplemented",
	CodeOperationTimeout:        "operation timeout",
	CodeBadArguments:            "bad arguments",
	CodeNoNode:                  "no node",
	CodeNoAuth:                  "no permission",
	CodeBadVersion:              "bad version",
	CodeNoChildrenForEphemerals: "ephemeral parent",
	CodeNodeExists:              "node exists",
	CodeNotEmpty:                "node has children",
	CodeSessionExpired:          "session expired",
	CodeInvalidACL:              "invalid ACL",
	CodeAuthFailed:              "authentication failed",
	CodeSessionMoved:            "session moved",
	CodeReadOnly:                "read-only",
	CodeNoWatcher:               "no such watch",
	CodeReconfigDisabled:        "reconfiguration disabled",
	CodeAuthRequired:            "authentication required",
	CodeQuotaExceeded:           "quota exceeded",
	CodeThrottled:               "throttled",
}

// String returns the meaning of the code ("no node", for example).
func (c Code) String() string {
	if name, ok := codeNames[c]; ok {
		return name
	}
	return "error " + strconv.Itoa(int(c))
}

package layout

import (
	"fmt"
	"log/slog"
)

// A SessionID is the ID of a session, printed as 0x and hex digits.
type SessionID int64

func (id SessionID) String() string { return fmt.Sprintf("%#x", uint64(id)) }

// LogValue makes every handler write it in that form.
func (id SessionID) LogValue() slog.Value { return slog.StringValue(id.String()) }

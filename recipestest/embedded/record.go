package embedded

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// A data directory holds files of two kinds, both made of a header and records. All numbers are
// big endian, and every checksum is a CRC-32C.
//
//	header: kind (4 bytes), version (4), salt (8), zxid (8), checksum of these (4)
//	record: length (4), checksum of salt and length (4), checksum of the payload (4), payload
//
// A record of a log is written when the record before it has reached the disk. So only the last one
// can be torn, and whatever else does not match its checksum is damaged. As the salt, a random
// number, is part of the first checksum, no data inside a payload passes for a record.
const (
	fileVersion = 1
	headerSize  = 28
	headSize    = 12 // of a record, without the payload
)

// The kinds of files.
const (
	kindLog      = "zkrl"
	kindSnapshot = "zkrs"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// A header is the beginning of a file.
type header struct {
	kind string
	salt uint64 // random: distinguishes the file's records from those of all others
	zxid int64  // of the snapshot; of the last transaction before the log
}

func (h header) append(b []byte) []byte {
	start := len(b)
	b = append(b, h.kind...)
	b = binary.BigEndian.AppendUint32(b, fileVersion)
	b = binary.BigEndian.AppendUint64(b, h.salt)
	b = binary.BigEndian.AppendUint64(b, uint64(h.zxid))
	return binary.BigEndian.AppendUint32(b, checksum(b[start:]))
}

// headSum returns the checksum of a record's length.
func (h header) headSum(length uint32) uint32 {
	var b [12]byte
	binary.BigEndian.PutUint64(b[:], h.salt)
	binary.BigEndian.PutUint32(b[8:], length)
	return checksum(b[:])
}

// recordHead returns the bytes before the payload of a record.
func (h header) recordHead(payload []byte) []byte {
	b := make([]byte, 0, headSize)
	b = binary.BigEndian.AppendUint32(b, uint32(len(payload)))
	b = binary.BigEndian.AppendUint32(b, h.headSum(uint32(len(payload))))
	return binary.BigEndian.AppendUint32(b, checksum(payload))
}

// A damage is a place in a file that isn't as it was written.
type damage struct {
	offset int
	what   string
}

func (d *damage) Error() string { return fmt.Sprintf("offset %d: %s", d.offset, d.what) }

// A recordFile is the content of a file: its header, its records, and a rest that isn't a record.
type recordFile struct {
	header
	payloads [][]byte // they share the memory of the content
	offsets  []int    // of the records
	torn     int      // size of an incomplete record at the end
}

// parseFile parses the content of a file of the given kind. It returns a [*damage] if the content
// wasn't written like this. (It can't distinguish a last record that was damaged later from an
// incomplete one.)
func parseFile(kind string, b []byte) (recordFile, error) {
	var f recordFile
	if len(b) < headerSize || checksum(b[:headerSize-4]) != binary.BigEndian.Uint32(b[headerSize-4:]) {
		return f, &damage{0, "the header does not match its checksum"}
	}
	f.header = header{
		kind: string(b[:4]),
		salt: binary.BigEndian.Uint64(b[8:]),
		zxid: int64(binary.BigEndian.Uint64(b[16:])),
	}

	if version := binary.BigEndian.Uint32(b[4:]); f.kind != kind || version != fileVersion {
		return f, &damage{0, fmt.Sprintf("the file is %q of version %d, not %q of version %d", f.kind, version, kind, fileVersion)}
	}

	for at := headerSize; at < len(b); {
		payload, end := f.record(b, at)
		if payload == nil {
			if f.followed(b, at, end) {
				return f, &damage{at, "a record does not match its checksum"}
			}
			f.torn = len(b) - at
			break
		}
		f.payloads = append(f.payloads, payload)
		f.offsets = append(f.offsets, at)
		at = end
	}

	return f, nil
}

// record returns the payload of the record at an offset of b, and where the record ends. If the
// record isn't as it was written, the payload is nil. If not even its length is, the end is 0.
func (h header) record(b []byte, at int) (payload []byte, end int) {
	if len(b)-at < headSize {
		return nil, 0
	}
	length := binary.BigEndian.Uint32(b[at:])
	if h.headSum(length) != binary.BigEndian.Uint32(b[at+4:]) {
		return nil, 0
	}

	start := at + headSize
	if uint64(length) > uint64(len(b)-start) {
		return nil, len(b)
	}
	end = start + int(length)
	payload = b[start:end:end]
	if checksum(payload) != binary.BigEndian.Uint32(b[at+8:]) {
		return nil, end
	}

	return payload, end
}

// followed reports whether another record was begun after the bad record at an offset of b. end is
// where the bad record ends, if that is known.
func (h header) followed(b []byte, at, end int) bool {
	if end != 0 {
		return end < len(b)
	}
	for q := at + 1; q <= len(b)-headSize; q++ {
		if payload, _ := h.record(b, q); payload != nil {
			return true
		}
	}
	return false
}

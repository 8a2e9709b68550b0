"""Runs a program for which the kernel refuses io_uring's system calls: seccomp answers EPERM, as
container runtimes do. Usage: without_io_uring.py PROGRAM [ARGUMENT ...]"""

import ctypes
import os
import struct
import sys

PR_SET_SECCOMP = 22
PR_SET_NO_NEW_PRIVS = 38
SECCOMP_MODE_FILTER = 2
LOAD_WORD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, FAIL_EPERM = 0x7FFF0000, 0x00050001
# io_uring_setup, io_uring_enter, io_uring_register; the numbers are the same on x86-64 and arm64.
REFUSED = (425, 426, 427)


def instruction(code, jump_true, jump_false, value):
    return struct.pack("=HBBI", code, jump_true, jump_false, value)


program = [instruction(LOAD_WORD, 0, 0, 0)]
for index, number in enumerate(REFUSED):
    program.append(instruction(JUMP_IF_EQUAL, len(REFUSED) - index, 0, number))
program.append(instruction(RETURN, 0, 0, ALLOW))
program.append(instruction(RETURN, 0, 0, FAIL_EPERM))

code = b"".join(program)
buffer = ctypes.create_string_buffer(code, len(code))
filter_ = ctypes.create_string_buffer(
    struct.pack("@HP", len(program), ctypes.addressof(buffer))
)
libc = ctypes.CDLL(None, use_errno=True)
for arguments in (
    (PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
    (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.c_void_p(ctypes.addressof(filter_)), 0, 0),
):
    if libc.prctl(*arguments) != 0:
        sys.exit("prctl: " + os.strerror(ctypes.get_errno()))
os.execv(sys.argv[1], sys.argv[1:])

"""Further texts found in public issues, beyond the list that this room is built after: for reading, and for causes."""

from __future__ import annotations

from typing import Any

from .texts import (
    KIB,
    MPS_TAIL,
    OLD_TAIL,
    SPLIT_TAIL,
    TAIL,
    Text,
    _numbers,
    gib,
    mib,
    tail,
)

NPU_TAIL = " If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation."


def _brackets(
    name: str,
    code: str,
    asked: str,
    total: str,
    allocated: str,
    free: str,
    held: str,
    end: str = "",
    *,
    format: str = "",
    device: int = 0,
    before: str = "RuntimeError: ",
) -> Text:
    """A message of 1.0 to 2.0, which names its numbers behind them, in brackets."""
    last = held if "cached" in held else f"{held} reserved in total by PyTorch"
    text = (
        f"{before}CUDA out of memory. Tried to allocate {asked} (GPU {device}; {total} total capacity; {allocated} "
        f"already allocated; {free} free; {last}){end}"
    )
    format = format or ("cuda 1.0" if "cached" in held else "cuda 1.10" if end else "cuda 1.4")
    of_held: dict[str, int | None] = {"unused" if "cached" in held else "reserved": _bytes(held)}
    numbers = _numbers(
        requested=_bytes(asked), total=_bytes(total), allocated=_bytes(allocated), free=_bytes(free), **of_held
    )
    return Text(name, text, format, code, numbers, {"device": device})


def _sentences(
    name: str,
    code: str,
    asked: str,
    total: str,
    free: str,
    allocated: str,
    unused: str,
    *,
    end: str = TAIL,
    format: str = "cuda 2.3",
    processes: str = "",
    process: str | None = None,
    others: tuple[tuple[int, int], ...] = (),
    allowed: str | None = None,
    device: int = 0,
    backend: str = "CUDA",
    before: str = "torch.OutOfMemoryError: ",
    word: str = "capacity",
) -> Text:
    """A message of 2.1 and later, which is sentences."""
    limit = f"{allowed} allowed; " if allowed else ""
    text = (
        f"{before}{backend} out of memory. Tried to allocate {asked}. GPU {device} has a total {word} of {total} of "
        f"which {free} is free. {processes}{limit}Of the allocated memory {allocated} is allocated by PyTorch, and "
        f"{unused} is reserved by PyTorch but unallocated.{end}"
    )
    numbers = _numbers(
        requested=_bytes(asked),
        total=_bytes(total),
        free=_bytes(free),
        allocated=_bytes(allocated),
        unused=_bytes(unused),
        process=_bytes(process),
        allowed=_bytes(allowed),
    )
    known: dict[str, Any] = {"device": device, "other_processes": others, "backend": backend.lower()}
    return Text(name, text, format, code, numbers, known)


def _bytes(text: str | None) -> int | None:
    if text is None:
        return None
    number, unit = text.split()[:2]
    return round(float(number) * {"bytes": 1, "KiB": KIB, "MiB": mib(1), "GiB": gib(1)}[unit])


def _this(process: str) -> str:
    return f"Including non-PyTorch memory, this process has {process} memory in use. "


def _mps(name: str, code: str, allocated: str, other: str, allowed: str, asked: str, pool: str = "private") -> Text:
    text = (
        f"MPS backend out of memory (MPS allocated: {allocated}, other allocations: {other}, max allowed: {allowed}). "
        f"Tried to allocate {asked} on {pool} pool.{MPS_TAIL}"
    )
    binary = [each.replace(" GB", " GiB").replace(" MB", " MiB") for each in (allocated, other, allowed, asked)]
    numbers = _numbers(
        allocated=_bytes(binary[0]), other=_bytes(binary[1]), allowed=_bytes(binary[2]), requested=_bytes(binary[3])
    )
    return Text(name, text, "mps 2.7" if "iB" in allocated else "mps 2.0", code, numbers, {"backend": "mps"})


WILD: tuple[Text, ...] = (
    # 1.0 to 1.3
    _brackets("GenerativeGraph#5", "DF501", "1024.00 KiB", "11.17 GiB", "10.90 GiB", "576.00 KiB", "30.96 MiB cached"),
    _brackets("pytorch#16417", "DF507", "12.50 MiB", "10.92 GiB", "8.57 MiB", "9.28 GiB", "4.68 MiB cached"),
    _brackets("pytorch#13751", "DF501", "16.00 GiB", "11.93 GiB", "4.00 GiB", "7.33 GiB", "179.00 KiB cached"),
    _brackets("pytorch#18853", "DF501", "1024.00 MiB", "15.90 GiB", "14.25 GiB", "991.56 MiB", "607.00 KiB cached"),
    _brackets("StructureFlow#35", "DF507", "8.13 GiB", "10.76 GiB", "643.57 MiB", "8.20 GiB", "32.43 MiB cached"),
    _brackets("colabtools#867", "DF501", "20.00 MiB", "11.17 GiB", "10.67 GiB", "2.81 MiB", "185.39 MiB cached"),
    _brackets(
        "pytorch-gpu-benchmark#1", "DF501", "32.00 MiB", "7.79 GiB", "6.64 GiB", "21.00 MiB", "150.86 MiB cached"
    ),
    _brackets("center-loss#7", "DF503", "12.00 MiB", "7.77 GiB", "5.54 GiB", "7.56 MiB", "35.91 MiB cached"),
    _brackets("ray#5755", "DF502", "1.50 GiB", "15.75 GiB", "11.71 GiB", "584.94 MiB", "2.38 GiB cached"),
    # 1.4 to 1.9
    _brackets("pytorch#35901", "DF502", "10.84 GiB", "23.65 GiB", "1.06 GiB", "10.26 GiB", "12.53 GiB"),
    _brackets("OPIXray#5", "DF502", "264.00 MiB", "2.00 GiB", "788.51 MiB", "145.93 MiB", "1.02 GiB"),
    _brackets("few-shot#27", "DF503", "1.21 GiB", "3.95 GiB", "1.27 GiB", "889.19 MiB", "1.27 GiB"),
    _brackets("MADDoG#11", "DF502", "2.87 GiB", "14.76 GiB", "8.77 GiB", "19.75 MiB", "13.71 GiB"),
    _brackets("vdsr_pytorch#2", "DF502", "512.00 MiB", "15.90 GiB", "13.13 GiB", "415.88 MiB", "14.80 GiB"),
    _brackets("mmsegmentation#944", "DF501", "1006.00 MiB", "10.91 GiB", "9.18 GiB", "569.81 MiB", "9.49 GiB"),
    _brackets("DCRNN#6", "DF501", "20.00 MiB", "5.80 GiB", "4.36 GiB", "6.69 MiB", "4.63 GiB", before="RuntimeError:"),
    Text(
        "Self_Explaining#6, cut before",
        "Tried to allocate 20.00 MiB (GPU 0; 1.96 GiB total capacity; 1.24 GiB already allocated; 2.88 MiB free; 1.25 "
        "GiB reserved in total by PyTorch)",
        "cuda 1.4",
        "DF501",
        _numbers(requested=mib(20), total=gib(1.96), allocated=gib(1.24), free=mib(2.88), reserved=gib(1.25)),
        {"device": 0},
    ),
    _brackets("espresso#48", "DF502", "1.55 GiB", "10.92 GiB", "7.66 GiB", "945.06 MiB", "9.36 GiB", device=2),
    # 1.10 to 2.0
    _brackets("One-2-3-45#25", "DF503", "1.69 GiB", "14.56 GiB", "649.97 MiB", "1.31 GiB", "1.01 GiB", OLD_TAIL),
    _brackets("DSTAGNN#4", "DF501", "12.00 MiB", "2.00 GiB", "1.68 GiB", "0 bytes", "1.71 GiB", OLD_TAIL),
    _brackets("localGPT-falcon#7", "DF503", "1.63 GiB", "44.56 GiB", "27.91 GiB", "565.31 MiB", "27.93 GiB", OLD_TAIL),
    _brackets("Zero-DCE#52", "DF501", "1.71 GiB", "6.00 GiB", "3.49 GiB", "1.04 GiB", "3.50 GiB", OLD_TAIL),
    _brackets("MuseTalk#362", "DF501", "58.00 MiB", "6.00 GiB", "5.13 GiB", "0 bytes", "5.23 GiB", OLD_TAIL),
    _brackets("VLM-RL#12", "DF503", "258.00 MiB", "23.54 GiB", "11.75 GiB", "572.50 MiB", "12.40 GiB", OLD_TAIL),
    _brackets("NWPU-Crowd#27", "DF501", "38.00 MiB", "4.00 GiB", "3.41 GiB", "0 bytes", "3.44 GiB", OLD_TAIL),
    _brackets(
        "taming-transformers#194", "DF501", "1.39 GiB", "6.00 GiB", "4.04 GiB", "478.00 MiB", "4.15 GiB", OLD_TAIL
    ),
    _brackets("AP-PA#3", "DF502", "2.81 GiB", "23.69 GiB", "16.12 GiB", "374.94 MiB", "19.00 GiB", OLD_TAIL),
    _brackets(
        "Stripformer#21", "DF502", "1.65 GiB", "7.79 GiB", "3.53 GiB", "1.40 GiB", "5.28 GiB", OLD_TAIL, device=1
    ),
    # 2.1 and 2.2
    _sentences(
        "MGFN#35",
        "DF502",
        "1.70 GiB",
        "6.00 GiB",
        "0 bytes",
        "2.93 GiB",
        "2.30 GiB",
        end=SPLIT_TAIL,
        format="cuda 2.1",
        word="capacty",
    ),
    _sentences(
        "NeuroLens#2",
        "DF501",
        "55.57 GiB",
        "12.00 GiB",
        "9.02 GiB",
        "984.52 MiB",
        "463.48 MiB",
        end=SPLIT_TAIL,
        format="cuda 2.1",
        word="capacty",
    ),
    _sentences(
        "Fooocus#1902",
        "DF507",
        "10.00 MiB",
        "6.00 GiB",
        "1.57 GiB",
        "3.24 GiB",
        "154.45 MiB",
        end=SPLIT_TAIL,
        format="cuda 2.1",
        word="capacty",
    ),
    _sentences(
        "MyGirlGPT#11: more free than asked for, and nearly none",
        "DF501",
        "32.00 MiB",
        "4.00 GiB",
        "41.56 MiB",
        "2.58 GiB",
        "1.90 MiB",
        processes=_this("3.44 GiB"),
        process="3.44 GiB",
        end=SPLIT_TAIL,
        format="cuda 2.1",
        word="capacty",
    ),
    _sentences(
        "lerf#73",
        "DF502",
        "3.00 GiB",
        "23.65 GiB",
        "1.66 GiB",
        "12.09 GiB",
        "4.84 GiB",
        processes=_this("20.81 GiB"),
        process="20.81 GiB",
        end=SPLIT_TAIL,
        format="cuda 2.1",
        word="capacty",
    ),
    _sentences(
        "GenerateU#10: the listed process is this one",
        "DF501",
        "496.00 MiB",
        "14.75 GiB",
        "235.06 MiB",
        "14.06 GiB",
        "330.42 MiB",
        processes="Process 20398 has 14.52 GiB memory in use. ",
        process="14.52 GiB",
        end=SPLIT_TAIL,
        format="cuda 2.1",
        word="capacty",
    ),
    _sentences(
        "pytorch#111363: a fraction of a half, not printed",
        "DF507",
        "64.00 MiB",
        "79.15 GiB",
        "38.09 GiB",
        "39.10 GiB",
        "427.46 MiB",
        processes=_this("41.06 GiB"),
        process="41.06 GiB",
        end=SPLIT_TAIL,
        format="cuda 2.1",
        word="capacty",
    ),
    _sentences(
        "sd-webui-replacer#74",
        "DF501",
        "27.12 GiB",
        "11.99 GiB",
        "0 bytes",
        "16.16 GiB",
        "144.59 MiB",
        end=SPLIT_TAIL,
        format="cuda 2.1",
        word="capacty",
    ),
    _sentences(
        "OOTDiffusion#167: nothing allocated",
        "DF507",
        "2.00 GiB",
        "4.00 GiB",
        "2.80 GiB",
        "0 bytes",
        "0 bytes",
        end="",
        format="cuda 2.1",
        word="capacty",
    ),
    # 2.3 and later
    _sentences(
        "CADS#4",
        "DF501",
        "22.78 GiB",
        "31.47 GiB",
        "12.73 GiB",
        "9.08 GiB",
        "9.35 GiB",
        processes=_this("18.73 GiB"),
        process="18.73 GiB",
    ),
    _sentences(
        "VSmTrans#3",
        "DF501",
        "226.00 MiB",
        "15.70 GiB",
        "210.38 MiB",
        "14.81 GiB",
        "336.73 MiB",
        processes=_this("15.48 GiB"),
        process="15.48 GiB",
    ),
    _sentences(
        "FireRedTTS2#17: two other processes",
        "DF503",
        "26.00 MiB",
        "11.66 GiB",
        "9.81 MiB",
        "9.30 GiB",
        "163.19 MiB",
        processes="Process 3893521 has 618.00 MiB memory in use. Process 1493972 has 1.28 GiB memory in use. "
        + _this("9.74 GiB"),
        process="9.74 GiB",
        others=((3893521, mib(618)), (1493972, gib(1.28))),
    ),
    _sentences(
        "a run of evo2 on three H200",
        "DF501",
        "75.13 GiB",
        "139.81 GiB",
        "63.24 GiB",
        "75.13 GiB",
        "18.76 MiB",
        processes="Process 3299062 has 76.56 GiB memory in use. ",
        process="76.56 GiB",
    ),
    _sentences(
        "a run of a diffusion model, 47 GiB",
        "DF502",
        "1.50 GiB",
        "47.41 GiB",
        "270.69 MiB",
        "33.18 GiB",
        "13.19 GiB",
        processes=_this("47.10 GiB"),
        process="47.10 GiB",
        device=1,
    ),
    _sentences(
        "2.10's variable",
        "DF501",
        "18.84 GiB",
        "39.38 GiB",
        "464.56 MiB",
        "35.58 GiB",
        "2.13 GiB",
        processes=_this("38.80 GiB"),
        process="38.80 GiB",
        end=tail("PYTORCH_ALLOC_CONF"),
        format="cuda 2.10",
        device=1,
    ),
    _sentences(
        "the exp_avg_sq of foreach Adam",
        "DF502",
        "1.44 GiB",
        "10.75 GiB",
        "748.75 MiB",
        "8.43 GiB",
        "1.32 GiB",
        processes=_this("10.01 GiB"),
        process="10.01 GiB",
        device=1,
    ),
    _sentences(
        "a limit, and another process: the limit refused it",
        "DF504",
        "996.00 MiB",
        "44.43 GiB",
        "9.06 GiB",
        "17.44 GiB",
        "59.88 MiB",
        processes="Process 2102129 has 17.54 GiB memory in use. " + _this("17.81 GiB"),
        process="17.81 GiB",
        others=((2102129, gib(17.54)),),
        allowed="17.69 GiB",
    ),
    _sentences(
        "ComfyUI#9529, HIP",
        "DF507",
        "432.00 MiB",
        "15.92 GiB",
        "7.12 GiB",
        "8.08 GiB",
        "321.96 MiB",
        end=tail("PYTORCH_HIP_ALLOC_CONF") + "\nThis error means you ran out of memory on your GPU.",
        format="hip 2.3",
        backend="HIP",
    ),
    _sentences(
        "pytorch#175431, HIP",
        "DF507",
        "2.00 MiB",
        "287.98 GiB",
        "203.49 GiB",
        "68.63 GiB",
        "14.93 GiB",
        format="hip 2.3",
        backend="HIP",
        device=7,
    ),
    _sentences(
        "pytorch#138002, HIP",
        "DF502",
        "6.64 GiB",
        "19.92 GiB",
        "6.22 GiB",
        "5.34 GiB",
        "7.10 GiB",
        end=tail("PYTORCH_HIP_ALLOC_CONF"),
        format="hip 2.3",
        backend="HIP",
    ),
    _sentences(
        "TheRock#2396, HIP",
        "DF503",
        "76.00 MiB",
        "287.98 GiB",
        "0 bytes",
        "8.51 GiB",
        "1.99 MiB",
        format="hip 2.3",
        backend="HIP",
    ),
    # MPS
    _mps("ComfyUI#7440", "DF504", "9.57 GiB", "17.35 GiB", "27.20 GiB", "292.50 MiB"),
    _mps("ComfyUI#2489", "DF504", "5.56 GB", "1.10 GB", "6.80 GB", "768.00 MB"),
    _mps("ComfyUI#7372: 18.13 GB", "DF504", "17.68 GB", "3.95 MB", "18.13 GB", "1024.00 MB"),
    _mps("pinokio#941", "DF504", "16.00 GB", "3.31 GB", "18.13 GB", "256 bytes", "shared"),
    _mps("Fooocus#1139", "DF504", "8.89 GB", "172.98 MB", "9.07 GB", "6.25 MB"),
    _mps("surya#254", "DF504", "7.23 GB", "1.54 GB", "9.07 GB", "896.00 MB"),
    _mps("clip-interrogator#74", "DF504", "6.04 GB", "1.04 GB", "6.77 GB", "459.07 MB"),
    _mps("MagicQuill#120", "DF504", "34.09 GB", "1.37 GB", "36.27 GB", "1.09 GB"),
    _mps("torch-max-mem, its tests", "DF504", "119.30 MB", "43.18 GB", "36.27 GB", "4.76 MB"),
    # others
    Text(
        "ComfyUI_SLK_joy_caption_two#28: white space gone",
        "Allocation on device 0 would exceed allowed memory. (out of memory)\nCurrently allocated : 15.16 GiB\n"
        "Requested : 512.00 KiB\nDevice limit : 15.99 GiB\nFree (according to CUDA): 0 bytes\nPyTorch limit (set by "
        "user-supplied memory fraction)\n: 17179869184.00 GiB",
        "malloc-async",
        "DF501",
        _numbers(requested=512 * KIB, total=gib(15.99), free=0, allocated=gib(15.16)),
        {"device": 0},
    ),
    Text(
        "sd-webui-animatediff#320: on one line",
        "OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of memory) Currently allocated : "
        "12.20 GiB Requested : 1.88 GiB Device limit : 16.00 GiB Free (according to CUDA): 0 bytes PyTorch limit (set "
        "by user-supplied memory fraction) : 17179869184.00 GiB",
        "malloc-async",
        "DF507",
        _numbers(requested=gib(1.88), total=gib(16), free=0, allocated=gib(12.20)),
        {"device": 0},
    ),
    Text(
        "TouchNet#100, NPU",
        "RuntimeError: NPU out of memory. Tried to allocate 5.03 GiB (NPU 3; 60.96 GiB total capacity; 49.47 GiB "
        "already allocated; 49.47 GiB current active; 1.32 GiB free; 57.55 GiB reserved in total by PyTorch)"
        + NPU_TAIL,
        "npu 1.10",
        "DF502",
        _numbers(requested=gib(5.03), total=gib(60.96), free=gib(1.32), allocated=gib(49.47), reserved=gib(57.55)),
        {"device": 3, "backend": "npu"},
    ),
    Text(
        "vllm-ascend#19, NPU",
        "RuntimeError: NPU out of memory. Tried to allocate 22.00 MiB (NPU 0; 60.97 GiB total capacity; 10.24 GiB "
        "already allocated; 10.24 GiB current active; 19.52 MiB free; 10.65 GiB reserved in total by PyTorch)"
        + NPU_TAIL,
        "npu 1.10",
        "DF503",
        _numbers(requested=mib(22), total=gib(60.97), free=mib(19.52), allocated=gib(10.24), reserved=gib(10.65)),
        {"device": 0, "backend": "npu"},
    ),
    Text(
        "intel-extension-for-pytorch#629: 4 GB in one piece",
        "RuntimeError: Current platform can NOT allocate memory block with size larger than 4GB! Tried to allocate "
        "6.85 GiB (GPU  0; 15.56 GiB total capacity; 0 bytes already allocated; 0 bytes reserved in total by PyTorch)",
        "xpu allocation limit",
        "DF504",
        _numbers(requested=gib(6.85), total=gib(15.56), allocated=0, reserved=0),
        {"device": 0, "backend": "xpu"},
    ),
    Text(
        "an Arc's, cut",
        "XPU out of memory. Tried to allocate 59.61 GiB. GPU 0 has a total capacity of 28.55 GiB of which 12.01 GiB is "
        "free.",
        "xpu 2.5",
        "DF501",
        _numbers(requested=gib(59.61), total=gib(28.55), free=gib(12.01)),
        {"device": 0, "backend": "xpu"},
    ),
    Text(
        "tiny-faces#12, host",
        r"RuntimeError: [enforce fail at ..\c10\core\CPUAllocator.cpp:72] data. DefaultCPUAllocator: not enough "
        "memory: you tried to allocate 113246208 bytes. Buy new RAM!",
        "host",
        "DF506",
        _numbers(requested=113246208),
        {"backend": "host"},
    ),
    Text(
        "FANG#1, host",
        "RuntimeError: [enforce fail at CPUAllocator.cpp:64] . DefaultCPUAllocator: can't allocate memory: you tried "
        "to allocate 1178729664 bytes. Error code 12 (Cannot allocate memory)",
        "host",
        "DF506",
        _numbers(requested=1178729664),
        {"backend": "host"},
    ),
    Text(
        "pytorch#20618, host, the words before it",
        "DefaultCPUAllocator: not enough memory: you tried to allocate 2GB. Buy new RAM!",
        "host",
        "DF506",
        _numbers(requested=gib(2)),
        {"backend": "host"},
    ),
    Text(
        "STCN#132, shared memory",
        "RuntimeError: DataLoader worker (pid 46794) is killed by signal: Bus error. It is possible that dataloader's "
        "workers are out of shared memory. Please try to raise your shared memory limit.",
        "host shared memory",
        "DF506",
        others={"backend": "host"},
    ),
    Text(
        "a worker killed",
        "RuntimeError: DataLoader worker (pid 1234) is killed by signal: Killed.",
        "host killed",
        "DF506",
        others={"backend": "host", "certainty": "likely"},
    ),
    Text(
        "nccl#1485",
        "node2:24881:25568 [2] include/alloc.h:185 NCCL WARN Failed to CUDA calloc 10485760 bytes",
        "nccl",
        "DF505",
        _numbers(requested=10485760),
    ),
    Text(
        "rmm#496",
        "MemoryError: std::bad_alloc: CUDA error at: ../include/rmm/mr/device/cuda_memory_resource.hpp68: "
        "cudaErrorMemoryAllocation out of memory",
        "runtime error",
        "DF507",
    ),
    Text(
        "fastcan#262, MPS",
        "RuntimeError: Invalid buffer size: 19.38 GiB",
        "mps buffer",
        "DF504",
        _numbers(requested=gib(19.38)),
        {"backend": "mps"},
    ),
)

# A recipe for Spack, which builds the checkout that it is in:
#
#     spack repo add packaging/spack && spack install ddptrain
from spack.package import *


class Ddptrain(CMakePackage):
    """Data-parallel training of neural networks from a YAML file."""

    git = ancestor(__file__, 5)
    license("MIT")
    version("main", branch="main")

    variant("gloo", default=True, description="several processes on CPUs")
    variant("mpi", default=False, description="several hosts by the Open MPI or MPICH that starts the processes")
    variant("onednn", default=True, description="large convolutions by oneDNN")
    variant("cuda", default=False, description="GPUs")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.22:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("gzip", type="build")
    depends_on("libyaml")
    depends_on("hdf5~mpi+hl")
    depends_on("zlib-api")
    depends_on("jpeg")
    depends_on("libpng")
    depends_on("sqlite")
    depends_on("utf8proc")
    depends_on("jansson")
    depends_on("nettle")
    depends_on("gloo", when="+gloo")
    depends_on("mpi", when="+mpi")
    depends_on("onednn@2", when="+onednn")
    depends_on("cuda@13:", when="+cuda")
    depends_on("cudnn", when="+cuda")
    depends_on("nccl", when="+cuda")

    def cmake_args(self):
        return [
            self.define("DDPTRAIN_TESTS", False),
            self.define("DDPTRAIN_CCACHE", False),
            self.define_from_variant("DDPTRAIN_MPI", "mpi"),
            self.define("DDPTRAIN_CUDA", "ON" if self.spec.satisfies("+cuda") else "OFF"),
        ]

    @run_after("install")
    def check_install(self):
        Executable(self.prefix.bin.ddptrain)("--version")
